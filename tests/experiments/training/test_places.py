"""How many runs are trained at once: what fits, what was asked for, and who waits for a place."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_cases import CPU, DIGITS, assert_same_end, digits, nothing, train_one

from subspaces.experiments.training import Execution, Run, loop
from subspaces.experiments.training.loop import _locked
from subspaces.experiments.training.places import Places, fitting
from subspaces.experiments.training.signals import stop_on_signals
from subspaces.experiments.training.turns import Turns, Watchers

RUNS = [replace(DIGITS, seed=seed, epochs=1) for seed in range(4)]


@pytest.mark.parametrize(
    ("room", "needs", "expected"),
    [(100, [10], 3), (89, [10], 2), (100, [10, 40], 1), (100, [40, 10], 1), (10, [40], 1), (30, [0], 10)],
)
def test_as_many_fit_as_three_times_the_largest_need_leaves_room_for(room: int, needs: Sequence[int], expected: int):
    assert fitting(room, needs) == expected


class Device:
    """A device with so much memory, of which each run takes a share; it pretends to be CUDA's."""

    def __init__(self, patch: pytest.MonkeyPatch, memory: int) -> None:
        self.memory, self.reserved, self.emptied = memory, 0, 0
        patch.setattr(torch.cuda, "mem_get_info", lambda _: (self.memory - self.reserved, self.memory))
        patch.setattr(torch.cuda, "memory_reserved", lambda _: self.reserved)
        patch.setattr(torch.cuda, "empty_cache", self.empty)

    def empty(self) -> None:
        self.emptied += 1

    def let_in(self, places: Places, size: int) -> None:
        with places.taken():
            self.reserved += size


def test_runs_are_let_in_until_the_memory_is_taken(monkeypatch: pytest.MonkeyPatch):
    device = Device(monkeypatch, 100)
    places = Places(Execution(device="cuda"))
    assert device.emptied == 1  # of what others have left
    running = 0
    while places.free(running):
        device.let_in(places, 8)
        running += 1
    assert running == 4  # each may grow to three times that
    device.reserved += 2 * 8 * 4  # and has
    assert not places.free(4)
    assert places.free(3)  # one is done
    device.let_in(places, 20)  # what comes in its place needs more
    assert [places.free(count) for count in range(4)] == [True, False, False, False]


def test_a_run_that_needs_more_than_the_device_has_is_alone(monkeypatch: pytest.MonkeyPatch):
    device = Device(monkeypatch, 100)
    places = Places(Execution(device="cuda"))
    device.let_in(places, 90)
    assert places.free(0)
    assert not places.free(1)


def test_images_that_all_share_are_not_what_a_run_needs(monkeypatch: pytest.MonkeyPatch):
    device = Device(monkeypatch, 100)
    places = Places(Execution(device="cuda"))
    device.let_in(places, 60)
    assert not places.free(1)
    places.shared(50)
    assert (places.needs, places.room) == ([10], 50)
    assert not places.free(1)
    places.shared(5)
    assert [places.free(running) for running in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_as_many_as_were_asked_for(device: str):
    places = Places(Execution(device=device, at_once=2))
    assert [places.free(running) for running in range(4)] == [True, True, False, False]


def test_on_a_cpu_all_that_take_turns_have_a_place():
    assert Places(Execution(device="cpu")).free(1000)


def test_the_rest_waits_for_a_place_and_ends_as_if_alone(tmp_path: Path):
    runs = [Run.under(tmp_path, recipe) for recipe in RUNS]
    running: list[int] = []
    begun: list[Run] = []

    def tick(run: Run, done: int) -> None:
        running.append(sum(each.folder.is_dir() and not each.finished for each in runs))

    watchers = Watchers(nothing, tick, lambda run, *_: begun.append(run))
    with stop_on_signals() as stop:
        assert Turns(digits(), replace(CPU, at_once=2), watchers, stop).train([[run] for run in runs]) == []
    assert max(running) == 2
    assert begun == runs
    for run in runs:
        assert_same_end(run, train_one(run.recipe, tmp_path / "alone"))


def test_nothing_is_left_to_train_where_another_process_has_finished_all(tmp_path: Path):
    """As on a GPU, where all are taken at once: between the look at them and the lock they were finished."""
    runs = [train_one(recipe, tmp_path) for recipe in RUNS[:2]]
    with _locked(runs, lambda *_: None) as ours, stop_on_signals() as stop:
        assert ours == []
        assert Turns(digits(), CPU, Watchers(nothing, nothing), stop).train([ours]) == []


def test_a_group_that_another_process_has_finished_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The way of a GPU, on a CPU: all runs of a group in one call."""
    runs = [train_one(recipe, tmp_path) for recipe in RUNS[:2]]
    monkeypatch.setattr(loop, "_together", lambda *_: True)
    alone = replace(CPU, stack=1)
    loop.train_runs(runs, digits(), alone, nothing, nothing, held=nothing)
    fresh = [Run.under(tmp_path / "fresh", recipe) for recipe in RUNS[:2]]
    loop.train_runs(fresh, digits(), alone, nothing, nothing, held=nothing)
    for run, expected in zip(fresh, runs, strict=True):
        assert_same_end(run, expected)


@pytest.mark.gpu
def test_what_runs_need_is_measured_on_a_gpu(tmp_path: Path):
    runs = [Run.under(tmp_path, recipe) for recipe in RUNS]
    execution = Execution(device="cuda", evaluate_every=0).resolved()
    with stop_on_signals() as stop:
        turns = Turns(digits(), execution, Watchers(nothing, nothing), stop)
        assert turns.train([[run] for run in runs]) == []
    assert all(run.finished for run in runs)
    assert len(turns.places.needs) == len(runs)
    assert turns.places.needs[0] > 0
    assert turns.places.free(len(runs))  # these are small
    assert not turns.places.free(fitting(turns.places.room, turns.places.needs))
