"""How many runs are trained at once: what fits, what was asked for, and who waits."""

import dataclasses
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import Pause, Worker
from training_cases import CPU, DIGITS, Watch, assert_same_end, digits, train_one

from subspaces.cli import main as app
from subspaces.experiments.locks import Stop
from subspaces.experiments.training import Execution, Recipe, Run, train
from subspaces.experiments.training.display import Display
from subspaces.experiments.training.scheduling import Scheduler, groups

RUNS = [replace(DIGITS, seed=seed, epochs=1) for seed in range(4)]


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
        assert scheduler.train([[run] for run in runs]) == []
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


def test_runs_with_the_same_images_and_batches_are_a_group(tmp_path: Path):
    apart = [{}, {"data_seed": 2}, {"validation": 9}, {"batch": 10}, {"dropout": 0.1}]
    alike = [{"seed": 2}, {"pad": 2}, {"method": "line"}, {"label_noise": 0.2}]
    runs = [Run.under(tmp_path, replace(DIGITS, **changes)) for changes in (*apart, *alike)]
    assert groups(runs) == [[runs[0], *runs[5:]], *([run] for run in runs[1:5])]


def test_the_rest_waits_and_ends_as_if_alone(tmp_path: Path):
    runs = [Run.under(tmp_path, recipe) for recipe in RUNS]
    running: list[int] = []
    begun: list[Run] = []

    def tick(run: Run, done: int) -> None:
        running.append(sum(each.folder.is_dir() and not each.finished for each in runs))

    watch = Watch(tick=tick, begin=lambda run, *_: begun.append(run))
    assert Scheduler(digits(), replace(CPU, at_once=2), watch, Stop()).train([[run] for run in runs]) == []
    assert max(running) == 2
    assert begun == runs
    for run in runs:
        assert_same_end(run, train_one(run.recipe, tmp_path / "alone"))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # as torch imports its compiler
def test_what_runs_need_is_measured_on_a_gpu(tmp_path: Path):
    runs = [Run.under(tmp_path, recipe) for recipe in RUNS]
    scheduler = Scheduler(digits(), Execution(device="cuda", evaluate_every=0).resolved(), Watch(), Stop())
    assert scheduler.train([[run] for run in runs]) == []
    assert all(run.finished for run in runs)
    assert len(scheduler.needs) == len(runs)
    assert scheduler.needs[0] > 0
    assert scheduler._has_room(len(runs))  # these are small


# Several processes


RECIPE = dataclasses.replace(DIGITS, method="line", epochs=2)
SEEDS = (0, 1, 2)
QUIET: dict[str, Any] = {"device": "cpu", "show": "quiet", "checkpoint_seconds": 0.0, "stack": 1}


def recipes(seeds: Sequence[int]) -> list[Recipe]:
    return [dataclasses.replace(RECIPE, seed=seed) for seed in seeds]


def trains(pause: Pause, out: Path, several: list[Recipe], after: int = 0) -> None:
    """Train, and pause after some steps of the first run."""
    plain = Display.tick
    Display.tick = lambda *told: (plain(*told), pause(after))[0]  # type: ignore[method-assign]
    train(several, out=out, **QUIET)


def types(pause: Pause, *arguments: str) -> None:
    """Type a command."""
    app(arguments)


def starts(run: Run) -> int:
    return len(run.starts())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """What one process makes."""
    return train(recipes(SEEDS), out=tmp_path_factory.mktemp("alone"), **QUIET)


def assert_same_runs(out: Path, alone: list[Run]) -> list[Run]:
    """All runs are finished, as one process would have, and nothing else lies there."""
    found = [Run.under(out, run.recipe) for run in alone]
    for run, expected in zip(found, alone, strict=True):
        assert_same_end(run, expected)
        assert {path.name for path in run.folder.iterdir()} == {path.name for path in expected.folder.iterdir()}
    assert sorted(path.name for path in out.iterdir()) == sorted(run.folder.name for run in found)
    return found


def test_two_processes_share_runs_that_they_name_in_another_order(alone: list[Run], tmp_path: Path) -> None:
    first = Worker(trains, tmp_path, recipes(SEEDS), 5)
    assert first.line() == "there\n"  # in its first run
    second = Worker(trains, tmp_path, recipes(SEEDS[::-1]))
    assert second.line() == f"waiting for {alone[0].folder.name}, which process {first.pid} is training\n"
    assert [Run.under(tmp_path, run.recipe).finished for run in alone] == [False, True, True]
    first.resume.set()
    assert (first.end(), second.end()) == ("", "")
    assert [starts(run) for run in assert_same_runs(tmp_path, alone)] == [1, 1, 1]


def test_one_that_waits_can_be_stopped(alone: list[Run], tmp_path: Path) -> None:
    run = Run.under(tmp_path, RECIPE)
    options = ["--network", "mlp", "--epochs", "2", "--out", str(tmp_path), "--device", "cpu", "-q"]
    command = ["train", "digits-line", *options]
    holder = Worker(types, *command, "--checkpoint-seconds", "0")
    holder.end()
    (run,) = (Run.open(folder) for folder in tmp_path.iterdir())
    (run.folder / "result.json").unlink()
    with run.locked():  # in this process, for which others wait
        workers = {number: Worker(types, *command) for number in (signal.SIGTERM, signal.SIGINT)}
        for number, worker in workers.items():
            assert worker.line() == f"waiting for {run.folder.name}, which process {os.getpid()} is training\n"
            os.kill(worker.pid, number)
            assert worker.end(128 + number) == "stopped; the same command continues\n"
    assert not run.finished


# What is left


@pytest.fixture
def copied(alone: list[Run], tmp_path: Path) -> Run:
    """A finished run that can be changed."""
    return Run(Path(shutil.copytree(alone[0].folder, tmp_path / alone[0].folder.name)), alone[0].recipe)


def test_the_checkpoint_of_a_finished_run_is_removed(copied: Run) -> None:
    state = copied.folder / "state.safetensors"
    state.write_bytes(b"of a process that was killed before it could remove it")
    before = starts(copied)
    train(copied.recipe, out=copied.folder.parent, **QUIET)
    assert not state.exists()
    assert starts(copied) == before


def test_a_refused_run_leaves_no_folder_that_was_made_for_it(tmp_path: Path) -> None:
    out = tmp_path / "new" / "runs"
    broken = dataclasses.replace(RECIPE, network="training_cases:nothing")
    with pytest.raises((ValueError, TypeError, RuntimeError, AttributeError)):
        train(broken, out=out, **QUIET)
    assert list(tmp_path.iterdir()) == []
