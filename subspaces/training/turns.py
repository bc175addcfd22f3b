"""Runs that take turns on one device, a step of each at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from subspaces.data import Dataset, ResidentLoader
from subspaces.phases import phase
from subspaces.training.execution import Execution
from subspaces.training.places import Places
from subspaces.training.runs import Run
from subspaces.training.signals import Stop
from subspaces.training.trainer import Report, Trainer, TrainingError

Tick = Callable[[Run, int], None]
Begin = Callable[[Run, int, int], None]


def nobody(run: Run, epoch: int, done: int) -> None:
    """Tell nobody that a run begins."""


class Watchers(NamedTuple):
    """Who is told of each epoch's row, of each step, and of a run that begins at an epoch and a step of it."""

    report: Report
    tick: Tick
    begin: Begin = nobody


class Turns:
    """Trains runs on one data set; those without a place on the device wait for one."""

    def __init__(self, dataset: Dataset, execution: Execution, watchers: Watchers, stop: Stop) -> None:
        self.dataset = dataset
        self.execution = execution
        self.watchers = watchers
        self.stop = stop
        self.places = Places(execution)
        self.images: ResidentLoader | None = None  # of the first run, which the others may share
        self.running: dict[Trainer, Iterator[int]] = {}
        self.begun: set[Run] = set()

    def train(self, runs: Sequence[Run], until: int | None = None) -> list[TrainingError]:
        """Train runs to their end, or until so many epochs are done; return what went wrong with those that failed."""
        waiting, failures = list(runs), list[TrainingError]()
        while waiting or self.running:
            before = len(self.running)
            failures += [error for trainer in list(self.running) for error in self._turn(trainer, until)]
            if waiting and len(self.running) < before:
                self.places.leave()
            while waiting and self.places.free(len(self.running)):
                failures += self._let_in(waiting.pop(0), until)
        return failures

    def _let_in(self, run: Run, until: int | None) -> list[TrainingError]:
        """Begin a run where it is, with its first steps."""
        run.check()
        with self.places.taken():
            trainer = Trainer(run, self.dataset, self.execution, self.watchers.report, self.images)
            run.start(self.execution)  # not before its network can be built
            if run not in self.begun:  # it may have gone ahead on a trunk before
                self.begun.add(run)
                self.watchers.begin(run, trainer.epoch, trainer.done)
            self.running[trainer] = trainer.steps(until)
            failures = self._turn(trainer, until)
        if self.images is None and isinstance(trainer.engine.loader, ResidentLoader):
            self.images = trainer.engine.loader
            self.places.shared(self.images.images.nbytes)
        return failures

    @phase("training")
    def _turn(self, trainer: Trainer, until: int | None) -> list[TrainingError]:
        """Let one run take its next steps."""
        failures, done = list[TrainingError](), None
        try:
            done = next(self.running[trainer], None)
            if done is None and until is not None:
                trainer.checkpoint()  # for when its turn comes again
        except TrainingError as error:
            failures.append(error)
        if done is None:
            del self.running[trainer]
        else:
            self.watchers.tick(trainer.run, done)
        if self.stop.signal is not None:
            _checkpoint(self.running)
            self.stop.heed()
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
