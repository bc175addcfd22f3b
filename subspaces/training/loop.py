"""Train runs: one after the other on a CPU, taking turns on one GPU."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

import torch

from subspaces.data import Dataset
from subspaces.training import trunks
from subspaces.training.config import Execution
from subspaces.training.runs import Run
from subspaces.training.signals import Stop, stop_on_signals
from subspaces.training.trainer import Report, Trainer, TrainingError

Tick = Callable[[Run, int], None]
Begin = Callable[[Run, int, int], None]
Held = Callable[[Run, str], None]


def _nobody(run: Run, epoch: int, done: int) -> None:
    """Tell nobody that a run begins."""


def _once(begin: Begin) -> Begin:
    """Return what tells of a run when it begins, and not again when it goes on after its trunk."""
    told: set[Run] = set()

    def tell(run: Run, epoch: int, done: int) -> None:
        if run not in told:
            told.add(run)
            begin(run, epoch, done)

    return tell


class Watchers(NamedTuple):
    """Who is told of each epoch's row, of each step, and of a run that begins at an epoch and a step of it."""

    report: Report
    tick: Tick
    begin: Begin = _nobody


def train_runs(
    runs: Sequence[Run],
    dataset: Dataset,
    execution: Execution,
    report: Report,
    tick: Tick,
    begin: Begin = _nobody,
    held: Held | None = None,
) -> None:
    """Train runs on one data set: all at once on a GPU, one after the other on a CPU.

    A run that fails does not stop the others; the first failure is raised when they are done. `held` is told of
    each run that is left out because another process trains it, and of which; without it that is an error.
    """
    gpu = execution.device.startswith("cuda")
    watchers = Watchers(report, tick, _once(begin))
    failures: list[TrainingError] = []
    runs = sorted(runs, key=_trunk)  # a short trunk is part of a long one
    # Dropout draws from the one generator of the device: what a run gets would depend on the others.
    together = gpu and not any(run.recipe.dropout for run in runs)
    with ExitStack() as stack:
        devices = [torch.device(execution.device)] if gpu else []
        stack.enter_context(torch.random.fork_rng(devices))  # the caller's random numbers are left alone
        stop = stack.enter_context(stop_on_signals())
        turns = partial(_take_turns, dataset=dataset, execution=execution, watchers=watchers, stop=stop)
        for some in [runs] if together else [[run] for run in runs]:  # one lock at a time leaves others their share
            with _taken(some, held) as ours:
                for leaders, epochs in leading(ours) if together else []:
                    failures += turns(leaders, until=epochs)
                failures += turns(ours)
    if failures:
        raise failures[0]


@contextmanager
def _taken(runs: Sequence[Run], held: Held | None) -> Iterator[list[Run]]:
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


def leading(runs: Sequence[Run]) -> list[tuple[list[Run], int]]:
    """Return which runs go ahead to the end of a trunk that others wait for, and how many epochs that is.

    The shortest trunk comes first, from where the next begins. Where runs are trained one after the other
    nobody waits: the first leaves the trunk for the others.
    """
    stages = []
    for epochs in sorted({run.recipe.trunk for run in runs} - {0}):
        waiting: dict[str, list[Run]] = {}
        for run in sorted(runs, key=_trunk):
            if run.recipe.trunk >= epochs and not trunks.path(run, epochs).is_file():
                waiting.setdefault(trunks.stem(run.recipe), []).append(run)
        firsts = [first for first, *others in waiting.values() if others and first.recipe.trunk == epochs]
        if firsts:
            stages.append((firsts, epochs))
    return stages


def _trunk(run: Run) -> int:
    return run.recipe.trunk


def _take_turns(
    runs: Sequence[Run],
    dataset: Dataset,
    execution: Execution,
    watchers: Watchers,
    stop: Stop,
    until: int | None = None,
) -> list[TrainingError]:
    """Train runs a step of each at a time, to their end or until so many epochs are done.

    Return what went wrong with those that failed.
    """
    trainers: list[Trainer] = []
    failures: list[TrainingError] = []
    for run in runs:
        run.check()
        trainers.append(Trainer(run, dataset, execution, watchers.report, trainers[0] if trainers else None))
        run.start(execution)  # not before its network can be built
        watchers.begin(run, trainers[-1].epoch, trainers[-1].done)
    turns = {trainer: trainer.steps(until) for trainer in trainers}
    while turns:
        for trainer, steps in list(turns.items()):
            try:
                done = next(steps, None)
                if done is None and until is not None:
                    trainer.checkpoint()  # for when its turn comes again
            except TrainingError as error:
                failures.append(error)
                done = None
            if done is None:
                del turns[trainer]
            else:
                watchers.tick(trainer.run, done)
            if stop.signal is not None:
                _checkpoint(turns)
                stop.heed()
    return failures


def _checkpoint(trainers: Iterable[Trainer]) -> None:
    """Write the state of every trainer; raise the first failure when all had their turn."""
    failures: list[Exception] = []
    for trainer in trainers:
        try:
            trainer.checkpoint()
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]
