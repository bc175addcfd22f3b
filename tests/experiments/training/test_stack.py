"""Runs that are trained as one program: each is what it would be alone, whatever becomes of the others."""

import dataclasses
import itertools
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from training_cases import (
    CPU,
    DIGITS,
    Countdown,
    Interrupted,
    assert_same_end,
    copy_state,
    interrupt,
    made_dataset,
    run_epochs,
    train_runs,
)

from subspaces.experiments import data
from subspaces.experiments.data import ResidentLoader
from subspaces.experiments.training import Execution, Recipe, Run, RunError, Stopped, TrainingError, trainer
from subspaces.experiments.training.engine import Engine
from subspaces.experiments.training.scheduling import stacks
from subspaces.experiments.training.stack import Stack, likeness

BASE = dataclasses.replace(DIGITS, epochs=2, batch=16)  # of the 90 images of made_dataset: 6 steps an epoch
DATA = made_dataset()
QUIET: dict[str, Any] = {"device": "cpu", "show": "quiet"}


def change(**changes: Any) -> Recipe:
    return dataclasses.replace(BASE, **changes)


def engines(
    recipes: list[Recipe], dataset: data.Dataset = DATA, execution: Execution = CPU, double: bool = False
) -> list[Engine]:
    first = Engine(recipes[0], dataset, execution)
    found = [first, *(Engine(one, dataset, execution, first.loader) for one in recipes[1:])]
    for engine in found if double else ():
        engine.family.double()
        assert isinstance(engine.loader, ResidentLoader)
        engine.loader.normalise.dtype = torch.float64
    return found


def together(recipes: list[Recipe], epochs: int = 2, **options: Any) -> list[dict[str, Any]]:
    """The states of engines after some epochs as one program."""
    stacked = engines(recipes, **options)
    Stack(stacked)
    for epoch in range(epochs):
        for other in stacked[1:]:
            other.set_epoch(epoch)
            other.start_epoch()
        run_epochs(stacked[0], [epoch])
    return [copy_state(each) for each in stacked]


def alone(recipes: list[Recipe], epochs: int = 2, **options: Any) -> list[dict[str, Any]]:
    found = engines(recipes, **options)
    for engine in found:
        run_epochs(engine, range(epochs))
    return [copy_state(engine) for engine in found]


def seeds(count: int = 3, **changes: Any) -> list[Recipe]:
    return [change(seed=seed, **changes) for seed in range(count)]


ALIKE = {
    "line": seeds(method="line"),
    "beta": [change(method="line", seed=seed, beta=beta) for seed, beta in enumerate((1.0, 0.5, 2.0))],
    "rates": [change(method="line", learning_rate=rate) for rate in (0.05, 0.01, 0.05)],
    "options": [change(momentum=momentum, weight_decay=decay) for momentum, decay in ((0.9, 0.0), (0.5, 0.1))],
    "layerwise": seeds(method="simplex", layerwise=True, vertices=4),
    "curve": seeds(method="curve", pad=1, flip=True),
    "samples": seeds(method="line", samples=2),
    "integral": seeds(method="integral"),
    "sam, groups": [change(method="sam", seed=seed, momentum=each) for seed, each in enumerate((0.9, 0.5, 0.5))],
    "smoothing": [change(seed=seed, label_smoothing=each) for seed, each in enumerate((0.0, 0.2, 0.5))],
    "one shape": [
        change(epochs=8, validation=5, seed=seed, **each)
        for seed, each in enumerate(
            (
                *({}, {"method": "ema"}, {"method": "early-stopping"}, {"method": "swa-cyclic", "vertices": 2}),
                *({"method": "snapshot", "vertices": count} for count in (2, 4)),
            )
        )
    ],
    "adam": seeds(method="line", optimizer="Adam", learning_rate=0.001),
    "convolutions": seeds(network="lenet", method="line"),
    "views": seeds(pad=0, augment="resized-crop"),
}
LOOSE = {"adam": 1e-3, "integral": 1e-3}  # the one makes steps of one size, also where a gradient is 0 but for rounding


@pytest.mark.parametrize("kind", ALIKE)
def test_every_run_is_what_it_is_alone(kind: str) -> None:
    """Loss, weights, state of the optimiser, random numbers and images: one epoch with another agrees to rounding."""
    assert len({likeness(recipe) for recipe in ALIKE[kind]}) == 1
    for one, other in zip(together(ALIKE[kind]), alone(ALIKE[kind]), strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            torch.testing.assert_close(value, other[name], rtol=2e-4, atol=LOOSE.get(kind, 2e-5))


COMPANY = {
    "one": [{}],
    "four": [{"seed": seed} for seed in (2, 3, 4, 5)],
    "other numbers": [{"beta": 0.3}, {"label_smoothing": 0.2}, {"learning_rate": 0.01}],
}


@pytest.mark.parametrize("own", [{}, {"label_smoothing": 0.1}, {"beta": 0.7}], ids=str)
@pytest.mark.parametrize("others", COMPANY)
def test_the_company_does_not_change_a_bit(others: str, own: dict[str, Any]) -> None:
    """On a CPU, of a network of matrix products."""
    line = {"method": "line", "layerwise": True}
    one = together([change(**line, **own)])
    several = together([change(**line, **own), *(change(**line, **other) for other in COMPANY[others])])
    assert one[0].keys() == several[0].keys()
    assert all(torch.equal(value, several[0][name]) for name, value in one[0].items())


@pytest.mark.filterwarnings("ignore")  # what the compiler's own parts warn of
def test_it_is_one_graph_and_the_same_compiled() -> None:
    stacks = [Stack(engines(seeds(2, method="line", layerwise=True))) for _ in range(2)]
    objectives = [stacks[0].objective, torch.compile(stacks[1].objective, backend="aot_eager", fullgraph=True)]
    for stack, objective in zip(stacks, objectives, strict=True):
        for _ in range(2):
            stack.optimizer.zero_grad()
            objective(*stack.loader.take(16)).backward()
            stack.optimizer.step()
    for one, other in zip(stacks[0].live().items(), stacks[1].live().items(), strict=True):
        assert one[0] == other[0]
        torch.testing.assert_close(one[1], other[1], rtol=1e-4, atol=1e-5)


# Which


def test_what_is_trained_alone() -> None:
    sampled = {"method": "line", "samples": 2}
    apart = [
        change(optimizer="Adagrad"),
        change(network="training_cases:dropped"),
        change(network="training_cases:dropped", dropout=0.1),
    ]
    assert [likeness(recipe) for recipe in apart] == [None] * 3
    fields = [{"batch": 8}, {"epochs": 3}, {"method": "curve"}, {"method": "line"}, {"optimizer": "Adam"}]
    fields += [{"method": "sam"}, {"method": "sam", "sam_rho": 0.1}]
    fields += [sampled, {**sampled, "layerwise": True}, {**sampled, "beta": 0.0}]
    assert len({likeness(recipe) for recipe in (change(), *(change(**each) for each in fields))}) == 11


def test_stacks(tmp_path: Path) -> None:
    recipes = [*seeds(5, method="line"), *seeds(2), change(optimizer="Adagrad"), *seeds(2, network="lenet")]
    runs = [Run.under(tmp_path, recipe) for recipe in recipes]
    sizes = {
        stack: [len(crew) for crew in stacks(runs, dataclasses.replace(CPU, stack=stack))] for stack in (None, 1, 3)
    }
    assert sizes == {None: [5, 2, 1, 1, 1], 1: [1] * 10, 3: [3, 2, 2, 1, 2]}
    assert [run for crew in stacks(runs, CPU) for run in crew] == runs
    assert stacks(runs, dataclasses.replace(CPU, precision="bfloat16", stack=4)) == [[run] for run in runs]
    assert max(map(len, stacks(runs, dataclasses.replace(CPU, at_once=2)))) == 2


# From beginning to end


ABSURD = {"learning": {"learning_rate": 1e30}, "decay": {"learning_rate": 0.01, "weight_decay": 1e30}}


@pytest.mark.parametrize("what", ABSURD)  # which is the last of the stack, and the first
def test_one_that_diverges_does_not_disturb_the_others(tmp_path: Path, what: str) -> None:
    absurd = change(seed=1, method="line", **ABSURD[what])
    recipes = [change(method="line"), absurd, change(seed=2, method="line")]
    runs = [Run.under(tmp_path, recipe) for recipe in recipes]
    with pytest.raises(TrainingError, match=f"{runs[1].folder.name} .*lower --learning-rate"):
        train_runs(runs, DATA, CPU)
    assert [run.finished for run in runs] == [True, False, True]
    expected = [Run.under(tmp_path / "two", recipe) for recipe in (recipes[0], recipes[2])]
    train_runs(expected, DATA, CPU)
    for run, other in zip((runs[0], runs[2]), expected, strict=True):
        assert_same_end(run, other)


@pytest.mark.parametrize(("optimizer", "seconds"), [("SGD", 0.0), ("Adam", 1e6)])
def test_stopped_runs_continue_bit_for_bit_in_whatever_company(tmp_path: Path, optimizer: str, seconds: float) -> None:
    recipes = seeds(method="line", optimizer=optimizer, learning_rate=0.001)
    expected = [Run.under(tmp_path / "once", recipe) for recipe in recipes]
    train_runs(expected, DATA, CPU)
    runs = [Run.under(tmp_path / "stopped", recipe) for recipe in recipes]
    how = dataclasses.replace(CPU, checkpoint_seconds=seconds)
    tick = Countdown(12, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Stopped):
        train_runs(runs, DATA, how, tick=tick)
    assert not any(run.finished for run in runs)
    for some in ([runs[1]], [runs[2], runs[0]]):
        train_runs(some, DATA, how)
    for run, other in zip(runs, expected, strict=True):
        assert_same_end(run, other)


def test_all_of_one_program_are_saved_at_the_same_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they are one program again after a crash."""
    clock = itertools.chain((0, 4, 8), itertools.count(9))  # they begin one after the other
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=clock.__next__, perf_counter=time.perf_counter))
    runs = [Run.under(tmp_path, recipe) for recipe in seeds(method="line")]
    how = dataclasses.replace(CPU, checkpoint_seconds=9)
    with pytest.raises(Interrupted):  # in the second turn: an epoch is five whole batches and one
        train_runs(runs, DATA, how, tick=Countdown(3 * 6, interrupt))
    found = [run.load_checkpoint() for run in runs]
    assert len({(each[1]["epoch"], each[1]["done"]) for each in found if each is not None}) == 1
    assert None not in found


@pytest.mark.parametrize(("damaged", "which"), [("state.safetensors", 0), ("log.jsonl", 2)])
def test_a_run_that_cannot_be_continued_does_not_stop_the_others(tmp_path: Path, damaged: str, which: int) -> None:
    recipes = seeds(method="line")
    expected = [Run.under(tmp_path / "once", recipe) for recipe in recipes]
    train_runs(expected, DATA, CPU)
    runs = [Run.under(tmp_path / "stopped", recipe) for recipe in recipes]
    with pytest.raises(Stopped):  # within the second epoch
        train_runs(runs, DATA, CPU, tick=Countdown(3 * 8, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    path = runs[which].folder / damaged
    path.write_bytes(path.read_bytes()[:-100])
    before = path.read_bytes()
    begun: list[Run] = []
    with pytest.raises(RunError, match=f"{path} is damaged"):
        train_runs(runs, DATA, CPU, begin=lambda run, *_: begun.append(run))
    assert path.read_bytes() == before
    assert [run.finished for run in runs] == [run is not runs[which] for run in runs]
    assert begun == [run for run in runs if run is not runs[which]]
    for run, other in zip(runs, expected, strict=True):
        if run is not runs[which]:
            assert_same_end(run, other)
