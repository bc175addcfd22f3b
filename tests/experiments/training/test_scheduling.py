"""How many runs are trained at once: what fits, what was asked for, and who waits."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_cases import CPU, DIGITS, Watch, assert_same_end, digits, train_one, train_runs

from subspaces.experiments.locks import Stop
from subspaces.experiments.training import Execution, Run, scheduling
from subspaces.experiments.training.scheduling import Scheduler, fitting
from subspaces.experiments.training.trainer import Clock

RUNS = [replace(DIGITS, seed=seed, epochs=1) for seed in range(4)]


def alone(runs: Sequence[Run]) -> list[list[Run]]:
    return [[run] for run in runs]


@pytest.mark.parametrize(
    ("room", "needs", "expected"),
    [(100, [10], 3), (89, [10], 2), (100, [10, 40], 1), (100, [40, 10], 1), (10, [40], 1), (30, [0], 10)],
)
def test_as_many_fit_as_three_times_the_largest_need_leaves_room_for(room: int, needs: Sequence[int], expected: int):
    assert fitting(room, needs) == expected


class Device:
    """A device with so much memory that pretends to be CUDA's; every run takes what its seed says."""

    def __init__(self, patch: pytest.MonkeyPatch, memory: int, sizes: Sequence[int]) -> None:
        self.memory, self.sizes, self.reserved, self.most = memory << 20, sizes, 0, 0
        patch.setattr(torch.cuda, "mem_get_info", lambda _: (self.memory - self.reserved, self.memory))
        patch.setattr(torch.cuda, "memory_reserved", lambda _: self.reserved)
        patch.setattr(torch.cuda, "empty_cache", lambda: None)

    def train(self, runs: Sequence[Run], **settings: int) -> None:
        scheduler = Scheduler(digits(), replace(CPU, **settings), Watch(begin=self.begin, tick=self.tick), Stop())
        scheduler.measured, scheduler.room = True, self.memory
        assert scheduler.train(alone(runs)) == []
        self.runs = runs

    def begin(self, run: Run, *_: int) -> None:
        self.reserved += self.sizes[run.recipe.seed] << 20

    def tick(self, run: Run, steps: int) -> None:
        self.most = max(self.most, sum(each.folder.is_dir() and not each.finished for each in self.runs))


@pytest.mark.parametrize(("sizes", "expected"), [([10] * 4, 3), ([90] * 4, 1), ([10, 10, 40, 10], 3)])
def test_runs_are_let_in_until_the_memory_is_taken(sizes, expected, monkeypatch, tmp_path: Path):
    device = Device(monkeypatch, 100, sizes)
    device.runs = [Run.under(tmp_path, recipe) for recipe in RUNS]
    device.train(device.runs)
    assert device.most == expected


def test_the_rest_waits_and_ends_as_if_alone(tmp_path: Path):
    runs = [Run.under(tmp_path, recipe) for recipe in RUNS]
    running: list[int] = []
    begun: list[Run] = []

    def tick(run: Run, done: int) -> None:
        running.append(sum(each.folder.is_dir() and not each.finished for each in runs))

    watch = Watch(tick=tick, begin=lambda run, *_: begun.append(run))
    assert Scheduler(digits(), replace(CPU, at_once=2), watch, Stop()).train(alone(runs)) == []
    assert max(running) == 2
    assert begun == runs
    for run in runs:
        assert_same_end(run, train_one(run.recipe, tmp_path / "alone"))


def test_runs_that_another_process_has_finished_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The way of a GPU, on a CPU: all runs of a group in one call, some finished since they were looked at."""
    runs = [train_one(recipe, tmp_path) for recipe in RUNS[:2]]
    monkeypatch.setattr(scheduling, "takes_turns", lambda *_: True)
    each = replace(CPU, stack=1)
    train_runs(runs, digits(), each, held={})
    fresh = [Run.under(tmp_path / "fresh", recipe) for recipe in RUNS[:2]]
    train_runs(fresh, digits(), each, held={})
    for run, expected in zip(fresh, runs, strict=True):
        assert_same_end(run, expected)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # as torch imports its compiler
def test_what_runs_need_is_measured_on_a_gpu(tmp_path: Path):
    runs = [Run.under(tmp_path, recipe) for recipe in RUNS]
    scheduler = Scheduler(digits(), Execution(device="cuda", evaluate_every=0).resolved(), Watch(), Stop())
    assert scheduler.train(alone(runs)) == []
    assert all(run.finished for run in runs)
    assert len(scheduler.needs) == len(runs)
    assert scheduler.needs[0] > 0
    assert fitting(scheduler.room, scheduler.needs) > len(runs)  # these are small


def test_the_clock_runs_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 12.5, 99.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    clock = Clock(None)
    clock.record()
    assert clock.ready()
    assert clock.seconds() == 2.5
