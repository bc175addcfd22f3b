"""Runs that take turns on one device, a step of each at a time."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from subspaces.experiments.data import Dataset, ResidentLoader
from subspaces.experiments.training.batches import Stream
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.places import Places
from subspaces.experiments.training.runs import Run, RunError
from subspaces.experiments.training.signals import Stop
from subspaces.experiments.training.stack import Stack
from subspaces.experiments.training.trainer import LastTrainingError, Report, Trainer, TrainingError
from subspaces.experiments.training.world import ALONE, EVERY, World

Tick = Callable[[Run, int], None]
Begin = Callable[[Run, int, int, int], None]
Failure = TrainingError | RunError
"""What went wrong with one run: its training, or a file that it was to continue from."""


def nobody(run: Run, epoch: int, done: int, batches: int) -> None:
    """Tell nobody that a run begins."""


class Watchers(NamedTuple):
    """Who is told of each epoch's row, of each step, and of a run that begins at an epoch and a step of its batches."""

    report: Report
    tick: Tick
    begin: Begin = nobody


class Crew:
    """Runs that are one program, or a single one: all are at the same batch of the same epoch."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        if len(trainers) > 1 or trainers[0].stacked:
            Stack([trainer.engine for trainer in trainers])
        self.steps: dict[Trainer, Generator[None]] = {trainer: trainer.steps() for trainer in trainers}

    def close(self) -> None:
        """Leave all runs where they are."""
        for steps in self.steps.values():
            steps.close()

    def turn(self, tick: Tick) -> list[Failure]:
        """Make the next steps of all, and tell of each; return what went wrong with those that failed."""
        failures = [error for trainer in list(self.steps) for error in self._tried(trainer, self._prepare)]
        if self.steps:
            taken = next(iter(self.steps)).advance()
            save = any(trainer.due for trainer in self.steps)  # all at the same step, where they can continue as one
            for trainer in list(self.steps):
                failed = self._tried(trainer, lambda one: one.took(taken, save))
                failures += failed
                if not failed:
                    tick(trainer.run, taken)
        return failures

    def _prepare(self, trainer: Trainer) -> None:
        """Go on to the next step, or to the end."""
        for _ in self.steps[trainer]:
            return
        del self.steps[trainer]

    def _tried(self, trainer: Trainer, work: Callable[[Trainer], None]) -> list[Failure]:
        """Do something for a run; one that fails is left out from then on."""
        try:
            work(trainer)
        except (TrainingError, RunError) as error:
            self.steps.pop(trainer, None)
            return [error]
        return []


class Turns:
    """Trains runs on one data set; those without a place on the device wait for one.

    `dataset` has the images, with the labels that all runs see, or is that by their label noise.
    """

    def __init__(
        self,
        dataset: Dataset | Mapping[float, Dataset],
        execution: Execution,
        watchers: Watchers,
        stop: Stop,
        world: World = ALONE,
    ) -> None:
        self.dataset = dataset
        self.execution = execution
        self.watchers = watchers
        self.stop = stop
        self.world = world
        self.turns = 0
        self.places = Places(execution)
        self.images: ResidentLoader | None = None  # of the first run, which the others may share
        self.running: list[Crew] = []

    def train(self, crews: Sequence[Sequence[Run]]) -> list[Failure]:
        """Train runs to their end; return what went wrong with those that failed.

        The runs of a crew are trained as one program, as far as they are at the same place.
        """
        try:
            return self._train([list(crew) for crew in crews if crew])
        finally:
            for crew in self.running:
                crew.close()

    def _train(self, waiting: list[list[Run]]) -> list[Failure]:
        failures = list[Failure]()
        while waiting or self.running:
            before = self._count()
            for crew in self.running:
                failures += self._turn(crew)
            self.running = [crew for crew in self.running if crew.steps]
            if waiting and self._count() < before:
                self.places.leave()
            while waiting and self.places.free(self._count()):
                failures += self._let_in(waiting.pop(0))
        return failures

    def _count(self) -> int:
        return sum(len(crew.steps) for crew in self.running)

    def _let_in(self, runs: Sequence[Run]) -> list[Failure]:
        """Begin a crew where its runs are, with their first steps."""
        failures, first = list[Failure](), self.images is None
        alike: dict[Any, list[Trainer]] = {}
        with self.places.taken(len(runs)):
            loader: ResidentLoader | Stream | None = self.images
            for run in runs:
                try:
                    trainer = self._begin(run, loader)
                except RunError as error:  # the others do not need its files
                    if not self.world.alone:
                        raise  # as another process may have read them
                    failures.append(error)
                    continue
                loader = trainer.engine.loader  # for the next, which sees images as this one does
                alone = not trainer.hooks.together or trainer.stacked is False or isinstance(loader, Stream)
                alike.setdefault(run if alone else (trainer.epoch, trainer.done), []).append(trainer)
            for trainers in alike.values():
                self.running.append(Crew(trainers))
                failures += self._turn(self.running[-1])
        if first and self.images is not None:
            self.places.shared(self.images.images.nbytes, len(runs))
        return failures

    def _begin(self, run: Run, images: ResidentLoader | Stream | None) -> Trainer:
        self.world.on_first(run.check)
        dataset = self.dataset if isinstance(self.dataset, Dataset) else self.dataset[run.recipe.label_noise]
        trainer = Trainer(run, dataset, self.execution, self.watchers.report, images, self.world)
        self.world.on_first(lambda: run.start(self.execution, self.world.size))  # not before its network can be built
        self.watchers.begin(run, trainer.epoch, trainer.done, len(trainer.engine.loader.sizes))
        if self.images is None and isinstance(trainer.engine.loader, ResidentLoader):
            self.images = trainer.engine.loader
        return trainer

    def _turn(self, crew: Crew) -> list[Failure]:
        """Let a crew take its next steps."""
        failures = crew.turn(self.watchers.tick)
        self.turns += 1
        if not self.world.alone and self.turns % EVERY == 0:
            self.stop.signal = self.world.largest(self.stop.signal or 0) or None
        if self.stop.signal is not None and (self.world.alone or self.turns % EVERY == 0):
            try:
                _checkpoint(trainer for each in self.running for trainer in each.steps)
            except TrainingError as error:
                raise LastTrainingError(str(error)) from error
            self.stop.raise_if_stopped()
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
