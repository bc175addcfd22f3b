"""Branches share their trunk exactly, and go their own ways after it."""

import dataclasses
import glob
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from training_cases import CPU, DIGITS, Countdown, assert_same_end, copy_state, made_dataset, nothing, rows, train_one

import subspaces as ss
from subspaces.experiments.training import Recipe, Run, RunError, Stopped
from subspaces.experiments.training.engine import Engine
from subspaces.experiments.training.loop import leading, train_runs
from subspaces.experiments.training.signals import stop_on_signals
from subspaces.experiments.training.trainer import Trainer
from subspaces.experiments.training.trunks import path
from subspaces.experiments.training.turns import Turns, Watchers

BASE = dataclasses.replace(DIGITS, epochs=4, batch=16, pad=1, flip=True)  # 6 steps an epoch
DATA = made_dataset()


def branch(trunk: int, number: int, **changes: Any) -> Recipe:
    return dataclasses.replace(BASE, trunk=trunk, branch=number, **changes)


def train_here(recipe: Recipe, out: Path, **options: Any) -> Run:
    return train_one(recipe, out, DATA, **options)


class Steps:
    """Counts how many steps a run takes."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self, run: Run, steps: int) -> None:
        self.taken += steps


def states(recipe: Recipe) -> list[dict[str, Tensor]]:
    """The state after each epoch, of an engine that is driven as the trainer does."""
    engine = Engine(recipe, DATA, CPU)
    found = []
    for epoch in range(recipe.epochs):
        engine.set_epoch(epoch)
        if epoch == recipe.trunk:
            engine.branch()
        engine.start_epoch()
        for done in range(len(engine.loader.sizes)):
            engine.advance(engine.loader.sizes, done)
        found.append(copy_state(engine))
    return found


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return all(torch.equal(first[name], value) for name, value in second.items())


@pytest.mark.parametrize("trunk", [0, 1, 3, 4])
def test_branches_are_one_until_the_trunk_ends_and_then_all_differ(trunk):
    runs = [states(branch(trunk, number)) for number in range(3)]
    plain = states(BASE)
    for epoch in range(4):
        assert same(runs[0][epoch], plain[epoch])  # branch 0 is the run itself
        for one, other in ((0, 1), (0, 2), (1, 2)):
            assert same(runs[one][epoch], runs[other][epoch]) == (epoch < trunk)


def test_what_differs_is_fixed_by_seed_and_branch():
    assert same(states(branch(1, 1))[-1], states(branch(1, 1))[-1])
    assert not same(states(branch(1, 1))[-1], states(branch(1, 1, seed=1))[-1])
    initial = {name: value for name, value in copy_state(Engine(branch(0, 1), DATA, CPU)).items() if "omega" in name}
    assert same(copy_state(Engine(BASE, DATA, CPU)), initial)  # a trunk of no epochs is the initial weights


METHODS = {
    "standard": {},
    "line": {"method": "line"},
    "ema": {"method": "ema", "ema_decay": 0.9},
    "snapshot": {"method": "snapshot", "vertices": 4},
    "dropout": {"network": "training_cases:dropped", "dropout": 0.4},
}


@pytest.mark.parametrize("method", METHODS)
def test_a_run_from_its_siblings_trunk_ends_as_one_from_scratch(method, tmp_path: Path):
    recipes = [branch(2, number, **METHODS[method]) for number in range(3)]
    taken = []
    for recipe in recipes:
        steps = Steps()
        together = train_here(recipe, tmp_path / "together", tick=steps)
        taken.append(steps.taken)
        alone = train_here(recipe, tmp_path / f"alone{recipe.branch}")
        assert_same_end(together, alone)
    assert taken == [24, 12, 12]  # the trunk was trained once
    logs = [rows(Run.under(tmp_path / "together", recipe)) for recipe in recipes]
    assert logs[0][:2] == logs[1][:2] == logs[2][:2]
    assert len({log[-1]["loss"] for log in logs}) == 3


def test_a_short_trunk_is_the_beginning_of_a_long_one(tmp_path: Path):
    steps = Steps()
    runs = [Run.under(tmp_path, branch(trunk, number)) for trunk in (3, 1) for number in (1, 2)]
    train_runs(runs, DATA, CPU, lambda *_: None, steps)
    # 24 of the first, 18 of the second from the trunk of one epoch; then 18 from there and 6 from three
    assert steps.taken == 24 + 18 + 18 + 6
    for run in runs:
        assert_same_end(run, train_here(run.recipe, tmp_path / run.folder.name))


def test_who_goes_ahead_where_all_are_trained_at_once(tmp_path: Path):
    recipes = [BASE, *(branch(trunk, number) for trunk in (3, 1) for number in (1, 2)), branch(3, 1, seed=1)]
    runs = [Run.under(tmp_path, recipe) for recipe in recipes]
    found = [([run.recipe for run in firsts], epochs) for firsts, epochs in leading(runs)]
    assert found == [([branch(1, 1)], 1), ([branch(3, 1)], 3)]  # the other seed is alone on its trunk
    one_each = [Run.under(tmp_path, branch(trunk, 1)) for trunk in (3, 1)]  # the short trunk is part of the long one
    assert [([run.recipe for run in firsts], epochs) for firsts, epochs in leading(one_each)] == [([branch(1, 1)], 1)]
    train_here(branch(1, 1), tmp_path)
    assert [epochs for _, epochs in leading(runs)] == [3]


def test_one_that_goes_ahead_and_fails_does_not_stop_the_others(tmp_path: Path):
    bad, good = branch(1, 1, learning_rate=1e30), branch(1, 1)
    runs = [Run.under(tmp_path, recipe) for recipe in (bad, good)]
    with stop_on_signals() as stop:
        failures = Turns(DATA, CPU, Watchers(nothing, nothing), stop).train([[run] for run in runs], until=1)
    (failure,) = failures
    assert runs[0].folder.name in str(failure)
    assert path(runs[1], 1).is_file()
    assert not path(runs[0], 1).is_file()


def test_a_run_that_went_ahead_goes_on_from_the_end_of_its_trunk(tmp_path: Path):
    """What happens on a GPU, by hand: a leader trains the trunk, writes a checkpoint, and is continued later."""
    recipe = branch(2, 1)
    run = Run.under(tmp_path, recipe)
    run.start(CPU)
    leader = Trainer(run, DATA, CPU, lambda *_: None)
    for _ in leader.steps(until=2):
        leader.took(leader.advance())
    assert (leader.epoch, leader.done) == (2, 0)
    leader.checkpoint()
    assert path(run, 2).is_file()
    assert not run.finished
    assert_same_end(train_here(recipe, tmp_path), train_here(recipe, tmp_path / "alone"))


@pytest.mark.parametrize("steps", [3, 12, 13, 20])
def test_a_branch_that_was_stopped_continues(steps, tmp_path: Path):
    recipe = branch(2, 1)
    with pytest.raises(Stopped):
        train_here(recipe, tmp_path, tick=Countdown(steps, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert_same_end(train_here(recipe, tmp_path), train_here(recipe, tmp_path / "alone"))


def test_a_damaged_trunk_is_named(tmp_path: Path):
    run = train_here(branch(2, 1), tmp_path)
    path(run, 2).write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"epoch2\.safetensors is damaged .* remove it"):
        train_here(branch(2, 2), tmp_path)


def test_trunks_do_not_look_like_runs(tmp_path: Path):
    quiet: dict[str, Any] = {"out": tmp_path, "show": "quiet", "tensorboard": False, "device": "cpu", "epochs": 2}
    ss.train("digits-standard", trunk=1, branch=1, **quiet)
    assert len(list(tmp_path.iterdir())) == 2
    (shown,) = glob.glob(str(tmp_path / "*"))  # as a shell has it
    assert Path(shown).name.startswith("digits-standard-seed0-")
