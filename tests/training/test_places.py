"""How many runs are trained at once: what fits, what was asked for, and who waits for a place."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training_cases import CPU, DIGITS, assert_same_end, digits, nothing, train_one

from subspaces.training import Execution, Run, loop
from subspaces.training.loop import _taken, leading
from subspaces.training.places import Places, fits
from subspaces.training.signals import stop_on_signals
from subspaces.training.turns import Turns, Watchers

RUNS = [replace(DIGITS, seed=seed, epochs=1) for seed in range(4)]


@pytest.mark.parametrize(
    ("free", "needs", "expected"),
    [(0, [], True), (10, [5], True), (9, [5], False), (100, [5, 60], False), (120, [60, 5], True)],
)
def test_one_more_fits_where_twice_the_largest_need_is_free(free: int, needs: Sequence[int], expected: bool):
    assert fits(free, needs) is expected


class Device:
    """A device with so much memory, of which each run takes a share; it pretends to be CUDA's."""

    def __init__(self, patch: pytest.MonkeyPatch, memory: int) -> None:
        self.memory, self.reserved = memory, 0
        patch.setattr(torch.cuda, "mem_get_info", lambda _: (self.memory - self.reserved, self.memory))
        patch.setattr(torch.cuda, "memory_reserved", lambda _: self.reserved)
        patch.setattr(torch.cuda, "empty_cache", lambda: None)


def test_runs_are_let_in_until_the_memory_is_taken(monkeypatch: pytest.MonkeyPatch):
    device = Device(monkeypatch, 100)
    places = Places(Execution(device="cuda"))
    running = 0
    while places.free(running):
        with places.taken():
            device.reserved += 20
        running += 1
    assert running == 4  # 20 are left, for evaluations
    assert places.needs == [20] * 4
    device.reserved -= 20
    assert places.free(3)


def test_a_run_that_needs_more_than_the_device_has_is_alone(monkeypatch: pytest.MonkeyPatch):
    device = Device(monkeypatch, 100)
    places = Places(Execution(device="cuda"))
    with places.taken():
        device.reserved += 90
    assert places.free(0)
    assert not places.free(1)


def test_images_that_all_share_are_not_what_a_run_needs(monkeypatch: pytest.MonkeyPatch):
    device = Device(monkeypatch, 100)
    places = Places(Execution(device="cuda"))
    with places.taken():
        device.reserved += 60
    assert not places.free(1)
    places.shared(50)
    assert places.needs == [10]
    assert places.free(1)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_as_many_as_were_asked_for(device: str):
    places = Places(Execution(device=device, at_once=2))
    assert [places.free(running) for running in range(4)] == [True, True, False, False]


def test_the_rest_waits_for_a_place_and_ends_as_if_alone(tmp_path: Path):
    runs = [Run.under(tmp_path, recipe) for recipe in RUNS]
    running: list[int] = []
    begun: list[Run] = []

    def tick(run: Run, done: int) -> None:
        running.append(sum(each.folder.is_dir() and not each.finished for each in runs))

    watchers = Watchers(nothing, tick, lambda run, *_: begun.append(run))
    with stop_on_signals() as stop:
        assert Turns(digits(), replace(CPU, at_once=2), watchers, stop).train(runs) == []
    assert max(running) == 2
    assert begun == runs
    for run in runs:
        assert_same_end(run, train_one(run.recipe, tmp_path / "alone"))


def test_nothing_is_left_to_train_where_another_process_has_finished_all(tmp_path: Path):
    """As on a GPU, where all are taken at once: between the look at them and the lock they were finished."""
    runs = [train_one(recipe, tmp_path) for recipe in RUNS[:2]]
    with _taken(runs, lambda *_: None) as ours, stop_on_signals() as stop:
        assert ours == []
        assert leading(ours) == []
        assert Turns(digits(), CPU, Watchers(nothing, nothing), stop).train(ours) == []


def test_a_group_that_another_process_has_finished_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The way of a GPU, on a CPU: all runs of a group in one call."""
    runs = [train_one(recipe, tmp_path) for recipe in RUNS[:2]]
    monkeypatch.setattr(loop, "_together", lambda *_: True)
    loop.train_runs(runs, digits(), CPU, nothing, nothing, held=nothing)
    fresh = [Run.under(tmp_path / "fresh", recipe) for recipe in RUNS[:2]]
    loop.train_runs(fresh, digits(), CPU, nothing, nothing, held=nothing)
    for run, expected in zip(fresh, runs, strict=True):
        assert_same_end(run, expected)
