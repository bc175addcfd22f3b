"""Train runs: one after the other on a CPU, taking turns on one GPU."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

import torch

from subspaces.data import Dataset, ResidentLoader
from subspaces.training import trunks
from subspaces.training.batches import Stream
from subspaces.training.config import Execution
from subspaces.training.places import Places
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
    """Train runs on one data set: at once on a GPU, as many as fit, and one after the other on a CPU.

    A run that fails does not stop the others; the first failure is raised when they are done. `held` is told of
    each run that is left out because another process trains it, and of which; without it that is an error.
    """
    gpu = execution.device.startswith("cuda")
    watchers = Watchers(report, tick, _once(begin))
    failures: list[TrainingError] = []
    runs = sorted(runs, key=_trunk)  # a short trunk is part of a long one
    together = _together(runs, execution)
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


def _together(runs: Sequence[Run], execution: Execution) -> bool:
    """Say whether runs take turns on the device.

    Dropout draws from the one generator of the device: what a run gets would depend on the others.
    """
    return execution.device.startswith("cuda") and not any(run.recipe.dropout for run in runs)


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

    Those without a place on the device wait for one. Return what went wrong with those that failed.
    """
    waiting, turns, failures = list(runs), dict[Trainer, Iterator[int]](), list[TrainingError]()
    places, images = Places(execution), None

    def turn(trainer: Trainer) -> None:
        try:
            done = next(turns[trainer], None)
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

    while waiting or turns:
        running = len(turns)
        for trainer in list(turns):
            turn(trainer)
        if waiting and len(turns) < running:
            places.leave()
        while waiting and places.free(len(turns)):
            with places.taken():
                trainer = _begin(waiting.pop(0), dataset, execution, watchers, images)
                turns[trainer] = trainer.steps(until)
                turn(trainer)
            if images is None:
                images = trainer.engine.loader
                places.shared(images)
    return failures


def _begin(
    run: Run, dataset: Dataset, execution: Execution, watchers: Watchers, images: ResidentLoader | Stream | None
) -> Trainer:
    """Return the trainer of a run where it is; `images` is a loader whose images it may share."""
    run.check()
    trainer = Trainer(run, dataset, execution, watchers.report, images)
    run.start(execution)  # not before its network can be built
    watchers.begin(run, trainer.epoch, trainer.done)
    return trainer


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
