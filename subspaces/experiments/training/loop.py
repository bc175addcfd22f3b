"""Train runs: those of equal structure as one program, others one after the other on a CPU, taking turns on a GPU."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from subspaces.experiments.data import Dataset
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.runs import Run
from subspaces.experiments.training.signals import stop_on_signals
from subspaces.experiments.training.stack import likeness
from subspaces.experiments.training.trainer import Report
from subspaces.experiments.training.turns import Begin, Failure, Tick, Turns, Watchers, nobody
from subspaces.experiments.training.world import ALONE, World
from subspaces.networks import registry

STACK = 16  # runs that are one program on a CPU, unless asked otherwise: more gain little, and leave others less
Held = Callable[[Run, str], None]


def train_runs(
    runs: Sequence[Run],
    dataset: Dataset | Mapping[float, Dataset],
    execution: Execution,
    report: Report,
    tick: Tick,
    begin: Begin = nobody,
    held: Held | None = None,
    world: World = ALONE,
) -> None:
    """Train runs on one data set: at once on a GPU, as many as fit, and one after the other on a CPU.

    Runs that can be one program (`crews`) are. `dataset` has the images, or is that by label noise. A run that fails
    does not stop the others; the first failure is raised when they are done. `held` is told of each run that is left
    out because another process trains it, and of which; without it that is an error. Several processes (`world`) train
    one run after the other together.
    """
    gpu = execution.device.startswith("cuda")
    watchers = Watchers(report, tick, begin)
    failures: list[Failure] = []
    together = _together(runs, execution) and world.alone
    programs = crews(runs, execution) if world.alone else [[run] for run in runs]
    with ExitStack() as stack:
        devices = [torch.device(execution.device)] if gpu else []
        stack.enter_context(torch.random.fork_rng(devices))  # the caller's random numbers are left alone
        stop = stack.enter_context(stop_on_signals(patient=not world.alone))
        turns = Turns(dataset, execution, watchers, stop, world)
        for some in [programs] if together else [[crew] for crew in programs]:  # few locks leave others their share
            with _taken([run for crew in some for run in crew], held, world) as ours:
                failures += turns.train([[run for run in crew if run in ours] for crew in some])
    if failures:
        raise failures[0]


def _together(runs: Sequence[Run], execution: Execution) -> bool:
    """Say whether runs take turns on the device.

    Dropout draws from the one generator of the device: what a run gets would depend on the others.
    """
    return execution.device.startswith("cuda") and not any(run.recipe.dropout for run in runs)


def crews(runs: Sequence[Run], execution: Execution) -> list[list[Run]]:
    """Return the runs in those groups that are trained as one program each, in the order of the first of each."""
    found: dict[Any, list[Run]] = {}
    for run in runs:
        found.setdefault(likeness(run.recipe) or run, []).append(run)
    result = []
    for same in found.values():
        most = execution.stack or (STACK if _pays(same[0], execution) else 1)
        most = min(most, execution.at_once or most)
        if execution.device == "cpu" and execution.precision == "bfloat16":
            most = 1  # autocast does not reach the convolutions of several networks on a CPU
        result += [same[start : start + most] for start in range(0, len(same), most)]
    return result


def _pays(run: Run, execution: Execution) -> bool:
    """Say whether runs of this kind are faster as one program."""
    return execution.device == "cpu" and run.recipe.network in registry.DENSE


@contextmanager
def _taken(runs: Sequence[Run], held: Held | None, world: World) -> Iterator[list[Run]]:
    """Hold those runs that no other process holds, and yield what is not finished; of several, the first does it."""
    with ExitStack() as stack:
        ours = world.on_first(lambda: [runs.index(run) for run in stack.enter_context(_locked(runs, held))])
        yield [runs[index] for index in ours]


@contextmanager
def _locked(runs: Sequence[Run], held: Held | None) -> Iterator[list[Run]]:
    """Hold those runs that no other process holds, and yield what is not finished of them."""
    with ExitStack() as stack:
        ours = []
        for run in runs:
            with ExitStack() as one:
                if held is None:
                    one.enter_context(run.locked())
                elif (holder := one.enter_context(run.attempt())) is not None:
                    held(run, holder)
                    continue
                if not run.finished:  # by another process before it let go of the lock
                    ours.append(run)
                    stack.enter_context(one.pop_all())
        yield ours
