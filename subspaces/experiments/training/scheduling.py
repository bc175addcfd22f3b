"""Which runs share images, a device or a stack, and in which order their steps come.

Runs with the same images and batches are a group (`groups`): the images are read once for all. In a group those of
equal structure are one program (`stacks`). On a CPU one program is trained after the other. On a GPU they take turns, a
step each, as many as was asked for or as fit into its memory: a run that is let in takes its first steps, and what the
device gives away for them is what it needs. It will grow: it captures a graph for several steps, for single ones and
for the last batch of an epoch, and it is evaluated.
"""

import dataclasses
import gc
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from subspaces.core import memory
from subspaces.errors import DataError
from subspaces.experiments.data import Dataset, ResidentLoader
from subspaces.experiments.locks import Stop, stop_on_signals
from subspaces.experiments.training.batches import Stream, check_data, load_levels
from subspaces.experiments.training.display import Display, Mode
from subspaces.experiments.training.execution import ALONE, EVERY, Execution, World
from subspaces.experiments.training.recipe import data_of
from subspaces.experiments.training.runs import Run, RunError
from subspaces.experiments.training.stack import Stack, likeness
from subspaces.experiments.training.step import many_compiled
from subspaces.experiments.training.trainer import Trainer, TrainingError
from subspaces.networks import registry

STACK = 16  # runs that are one program on a CPU, unless asked otherwise: more gain little, and leave others less
GROWTH = 3  # times what its first steps take is kept free for every run on a GPU
Failure = TrainingError | RunError
"""What went wrong with one run: its training, or a file that it was to continue from."""


def train_runs(
    runs: Sequence[Run],
    execution: Execution,
    data: Path | None,
    show: Mode,
    held: dict[Run, str],
    world: World = ALONE,
) -> list[Failure]:
    """Train runs in this process, and return what went wrong with some; the others are trained nevertheless.

    `held` takes up the runs that are left out because other processes train them, and which ones do.
    """
    failures = list[Failure]()
    parts = groups(runs)
    _check_all(parts[1:], data, show, world)  # the first is checked where it is trained
    for members in parts:
        recipes = [run.recipe for run in members]
        try:
            with Display(show) as shown:
                dataset = load_levels(recipes, data, shown.progress)
                check_data(recipes, dataset, world.size)
                failures += train_group(members, dataset, execution, shown, held, world)
        except Exception as error:
            if not memory.ran_out(error):
                raise
            where = f"out of memory on {execution.device} with {len(members)} runs and batches of {recipes[0].batch}"
            remedy = "lower --batch or --at-once, or use --no-resident"
            failures.append(TrainingError(f"{where}{memory.reason(error)}: {remedy}"))
    return failures


def _check_all(parts: Sequence[Sequence[Run]], data: Path | None, show: Mode, world: World) -> None:
    """Refuse runs that cannot be trained on their images before any other is."""
    for members in parts:
        recipes = [run.recipe for run in members]
        try:
            with Display(show) as shown:
                check_data(recipes, load_levels(recipes, data, shown.progress), world.size)
        except (FileNotFoundError, DataError):
            continue  # data that are missing or broken are an error of these runs alone, when their turn comes
        except Exception as error:
            if not memory.ran_out(error):  # nor is there room to check, as there may be later
                raise


def groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs by what they must share to be trained at once: images, batches, and whether they have dropout.

    Those with dropout take no turns on a GPU, and would keep the others from it.
    """
    found: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        one = run.recipe
        key = (*data_of(dataclasses.replace(one, label_noise=0.0)), one.batch, one.dropout > 0)
        found.setdefault(key, []).append(run)
    return list(found.values())


def stacks(runs: Sequence[Run], execution: Execution) -> list[list[Run]]:
    """Return the runs in those parts that are trained as one program each, in the order of the first of each."""
    found: dict[Any, list[Run]] = {}
    for run in runs:
        found.setdefault(likeness(run.recipe) or run, []).append(run)
    result = []
    for same in found.values():
        cpu = execution.device == "cpu"
        most = execution.stack or (STACK if cpu and same[0].recipe.network in registry.DENSE else 1)  # these gain by it
        most = min(most, execution.at_once or most)
        if cpu and execution.precision == "bfloat16":
            most = 1  # autocast does not reach the convolutions of several networks on a CPU
        result += [same[start : start + most] for start in range(0, len(same), most)]
    return result


def train_group(
    runs: Sequence[Run],
    dataset: Dataset | Mapping[float, Dataset],
    execution: Execution,
    shown: Display,
    held: dict[Run, str],
    world: World = ALONE,
) -> list[Failure]:
    """Train runs on one data set, or on those by the noise of their labels, and return what went wrong with some."""
    gpu = execution.device.startswith("cuda")
    programs = stacks(runs, execution) if world.alone else [[run] for run in runs]
    # Dropout draws from the one generator of a device: such runs take no turns.
    turns = gpu and world.alone and not any(run.recipe.dropout for run in runs)
    failures = list[Failure]()
    with ExitStack() as stack:
        # The caller's random numbers and limits are left alone.
        stack.enter_context(torch.random.fork_rng([torch.device(execution.device)] if gpu else []))
        if execution.compile:
            stack.enter_context(many_compiled())
        stop = stack.enter_context(stop_on_signals(patient=not world.alone))
        scheduler = Scheduler(dataset, execution, shown, stop, world)
        for some in [programs] if turns else [[one] for one in programs]:  # few locks leave others their share
            with _taken([run for program in some for run in program], held, world) as ours:
                failures += scheduler.train([[run for run in program if run in ours] for program in some])
    return failures


@contextmanager
def _taken(runs: Sequence[Run], held: dict[Run, str], world: World) -> Iterator[list[Run]]:
    """Hold those runs that no other process holds, and yield what is not finished; of several, the first does it."""
    with ExitStack() as stack:

        def taken() -> list[int]:
            ours = []
            for index, run in enumerate(runs):
                with ExitStack() as one:
                    holder = one.enter_context(run.attempt() if world.alone else run.locked())
                    if holder is not None:
                        held[run] = holder
                    elif not run.finished:  # by another process before it let go of the lock
                        ours.append(index)
                        stack.enter_context(one.pop_all())
            return ours

        yield [runs[index] for index in world.on_first(taken)]


class RunGroup:
    """Runs that are one program, or a single one: all are at the same batch of the same epoch."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        if len(trainers) > 1 or trainers[0].stacked:
            Stack([trainer.engine for trainer in trainers])
        self.steps: dict[Trainer, Generator[None]] = {trainer: trainer.steps() for trainer in trainers}

    def turn(self, shown: Display) -> list[Failure]:
        """Make the next steps of all, and show them; return what went wrong with those that failed."""
        failures = list[Failure]()
        for trainer in list(self.steps):
            with self._left_out(trainer, failures):  # where an epoch ends, it is evaluated and logged here
                if next(self.steps[trainer], StopIteration) is StopIteration:
                    del self.steps[trainer]
        if not self.steps:
            return failures
        first = next(iter(self.steps))
        with first.on_stream():
            taken = first.engine.step.advance(first.engine.loader.sizes, first.done)
        save = any(trainer.due for trainer in self.steps)  # all at the same step, where they can continue as one
        for trainer in list(self.steps):
            with self._left_out(trainer, failures):
                trainer.done += taken
                if save:
                    trainer.checkpoint()
                shown.tick(trainer.run, taken)
        return failures

    @contextmanager
    def _left_out(self, trainer: Trainer, failures: list[Failure]) -> Iterator[None]:
        """Leave out a run that fails from then on."""
        try:
            yield
        except (TrainingError, RunError) as error:
            self.steps.pop(trainer, None)
            failures.append(error)


class Scheduler:
    """Trains runs on one data set; those for which the device has no room wait."""

    def __init__(
        self,
        dataset: Dataset | Mapping[float, Dataset],
        execution: Execution,
        shown: Display,
        stop: Stop,
        world: World = ALONE,
    ) -> None:
        self.dataset, self.execution, self.shown, self.stop, self.world = dataset, execution, shown, stop, world
        self.turns = 0
        self.images: ResidentLoader | None = None  # of the first run, which the others may share
        self.running: list[RunGroup] = []
        self.device = torch.device(execution.device)
        self.measured = self.device.type == "cuda" and execution.at_once is None
        self.needs: list[int] = []  # bytes of the first steps of each run so far
        self._free_memory()
        self.room = torch.cuda.mem_get_info(self.device)[0] if self.measured else 0

    def train(self, programs: Sequence[Sequence[Run]]) -> list[Failure]:
        """Train runs to their end, those of a program as one as far as they are at the same place."""
        waiting = [list(program) for program in programs if program]
        failures = list[Failure]()
        try:
            while waiting or self.running:
                before = self._count()
                for group in self.running:
                    failures += self._turn(group)
                self.running = [group for group in self.running if group.steps]
                if waiting and self._count() < before:
                    self._free_memory()
                while waiting and self._has_room(self._count()):
                    first, given = self.images is None, self._reserved()
                    runs = waiting.pop(0)
                    for group in self._let_in(runs, failures):
                        self.running.append(group)
                        failures += self._turn(group)
                    shared = self.images.images.nbytes if first and self.images is not None else 0  # with all others
                    self.needs.append((self._reserved() - given - shared) // len(runs))
                    self.room -= shared
        finally:
            for steps in (steps for group in self.running for steps in group.steps.values()):
                steps.close()
        return failures

    def _count(self) -> int:
        return sum(len(group.steps) for group in self.running)

    def _has_room(self, running: int) -> bool:
        """Say whether another run fits beside so many; the first always does."""
        if not self.measured:
            return self.execution.at_once is None or running < self.execution.at_once
        most = self.room // (GROWTH * max(1, *self.needs)) if self.needs else 1
        return running < max(1, most)

    def _free_memory(self) -> None:
        """Give the memory of runs that are done back to the device."""
        if self.measured:
            gc.collect()
            torch.cuda.empty_cache()

    def _reserved(self) -> int:
        return torch.cuda.memory_reserved(self.device) if self.measured else 0

    def _let_in(self, runs: Sequence[Run], failures: list[Failure]) -> list[RunGroup]:
        """Begin a program where its runs are, as one as far as they are at the same place."""
        alike: dict[Any, list[Trainer]] = {}
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
        return [RunGroup(trainers) for trainers in alike.values()]

    def _begin(self, run: Run, images: ResidentLoader | Stream | None) -> Trainer:
        dataset = self.dataset if isinstance(self.dataset, Dataset) else self.dataset[run.recipe.label_noise]
        trainer = Trainer(run, dataset, self.execution, self.shown.report, images, self.world)
        self.world.on_first(lambda: run.start(self.execution, self.world.size))  # not before its network can be built
        self.shown.begin(run, trainer.epoch, trainer.done, len(trainer.engine.loader.sizes))
        if self.images is None and isinstance(trainer.engine.loader, ResidentLoader):
            self.images = trainer.engine.loader
        return trainer

    def _turn(self, group: RunGroup) -> list[Failure]:
        """Let a group take its next steps; where a signal has come, save all and stop."""
        failures = group.turn(self.shown)
        self.turns += 1
        if not self.world.alone:
            if self.turns % EVERY:
                return failures
            self.stop.signal = self.world.largest(self.stop.signal or 0) or None
        if self.stop.signal is not None:
            unsaved = list[Exception]()
            for trainer in (trainer for group in self.running for trainer in group.steps):
                try:
                    trainer.checkpoint()
                except TrainingError:
                    continue  # its last good checkpoint is kept
                except (OSError, RunError) as error:  # the others are saved nevertheless
                    unsaved.append(error)
            if unsaved:
                raise unsaved[0]
            self.stop.raise_if_stopped()
        return failures
