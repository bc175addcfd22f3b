"""Train runs: one after the other on a CPU, taking turns on one GPU."""

import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

import torch

from subspaces.data import Dataset
from subspaces.training.config import Execution
from subspaces.training.runs import Run
from subspaces.training.signals import Stop, Stopped, stop_on_signals
from subspaces.training.trainer import Report, Trainer, TrainingError

Tick = Callable[[Run, int], None]


def train_runs(runs: Sequence[Run], dataset: Dataset, execution: Execution, report: Report, tick: Tick) -> None:
    """Train runs on one data set: all at once on a GPU, one after the other on a CPU."""
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(run.locked())
        runs = [run for run in runs if not run.finished]  # by another process, before it let go of the lock
        devices = [torch.device(execution.device)] if execution.device.startswith("cuda") else []
        stack.enter_context(torch.random.fork_rng(devices))  # the caller's random numbers are left alone
        stop = stack.enter_context(stop_on_signals())
        together = len(runs) if execution.device.startswith("cuda") else 1
        for start in range(0, len(runs), together):
            _take_turns(runs[start : start + together], dataset, execution, report, tick, stop)


def _take_turns(
    runs: Sequence[Run],
    dataset: Dataset,
    execution: Execution,
    report: Report,
    tick: Tick,
    stop: Stop,
) -> None:
    trainers = []
    for run in runs:
        run.start(execution)
        trainers.append(Trainer(run, dataset, execution, report))
    turns = {trainer: trainer.steps() for trainer in trainers}
    while turns:
        for trainer, steps in list(turns.items()):
            try:
                done = next(steps, None)
            except TrainingError:
                del turns[trainer]
                _checkpoint(turns)
                raise
            if done is None:
                del turns[trainer]
            else:
                tick(trainer.run, done)
            if stop.signal is not None:
                _checkpoint(turns)
                raise Stopped(signal.Signals(stop.signal).name)


def _checkpoint(trainers: Iterable[Trainer]) -> None:
    for trainer in trainers:
        trainer.checkpoint()
