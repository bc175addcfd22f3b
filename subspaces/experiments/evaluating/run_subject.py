"""Finished runs as what is measured: their folders bring recipe, data and family."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from subspaces.core import checks, storage
from subspaces.core.family import Subspace
from subspaces.errors import ArgumentError
from subspaces.evaluation.answers import Family
from subspaces.evaluation.frames import OUTLIERS
from subspaces.evaluation.images.pixels import Normalise
from subspaces.evaluation.images.splits import Images, Split
from subspaces.evaluation.pictures import SMALL, Pictures, batch_size, fitted, in_batches, small_pictures
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.subject import Constants, Data, Subject
from subspaces.evaluation.tasks import Classification
from subspaces.experiments import data as datasets
from subspaces.experiments import locks
from subspaces.experiments.data import NAMES, Dataset, ResidentLoader, unlabelled
from subspaces.experiments.data.loading import OWN
from subspaces.experiments.evaluating.captured import CapturedPredictor
from subspaces.experiments.evaluating.training import seconds_of, training_of
from subspaces.experiments.training.batches import evaluation_batches, fits_memory, statistics_batches, statistics_seed
from subspaces.experiments.training.engine import build_family
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.feasible import data_of
from subspaces.experiments.training.images import load_data
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run, RunError, free
from subspaces.experiments.training.signals import Stop, stop_on_signals
from subspaces.text import hint

R = TypeVar("R")
VIEW = 256 / 224  # of files, to which the shorter side is scaled before the middle is taken, as in `StreamingLoader`
OneRun = Run | str | os.PathLike[str]


class RunSubject(Subject):
    """A finished run, its data and its family on the device; with `trust` its network is built whoever trained it."""

    def __init__(
        self,
        run: Run,
        data: Callable[[], Dataset],
        execution: Execution,
        trust: bool = False,
        others: Callable[[str], Dataset] = datasets.load,
    ) -> None:
        run.check_trusted(trust is True)
        self.run, self.recipe, self.folder, self._data, self._others = run, run.recipe, run.folder, data, others
        self.execution = execution
        self.check()
        splits = ["test", *(["validation"] if run.recipe.validation else [])]
        seed, shape = run.recipe.seed, run.recipe.result_shape()
        loaders = dict.fromkeys(splits, ())  # which a predictor of a run makes itself
        super().__init__(run.folder.name, shape, Classification(), loaders, dataclasses.asdict(execution), seed=seed)
        self.label = f"{run.recipe.name} seed {seed}"
        self.answers = tuple(run.recipe.answers)
        definition = run.recipe.definition
        self.terms = Family(shape, middle=definition.middle(), vertices=definition.members)
        self.noted = {"batch": run.recipe.batch}

    def check(self) -> None:
        """Refuse a run that is not finished."""
        if not self.run.finished:
            lacking = "no trained family" if not self.run.family_file.is_file() else "no result"
            raise RunError(f"{self.run.folder} is not finished, it has {lacking}: train it to the end first")

    def trained(self, statistics: dict[str, Any]) -> dict[str, Any]:
        """Return the recipe, and how the run was trained."""
        log = self.run.log()
        training = training_of(self.recipe, log=log, seconds=seconds_of(statistics, log))
        return {
            "recipe": self.recipe.to_dict(),
            "training": dataclasses.replace(training, folder=str(self.folder), starts=self.run.starts()),
        }

    @cached_property
    def images_of(self) -> Dataset:
        """The data of the run, with its label noise and its held-out images."""
        return self._data()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.images_of.classes

    @property
    def dataset(self) -> dict[str, Any]:
        """Name, classes and sizes of the run's data."""
        sizes = {split: len(getattr(self.images_of, split)) for split in self.splits}
        return {"name": self.images_of.name, "classes": list(self.images_of.classes), "splits": sizes}

    @cached_property
    def family(self) -> Subspace:  # type: ignore[override]
        """The trained family."""
        self.run.check_family(self.run.family_file)
        network = build_family(self.recipe, self.images_of, self.execution).midpoint()
        return storage.load(self.run.family_file, network, self.shape).to(self.execution.device)

    @cached_property
    def checksum(self) -> str:  # type: ignore[override]
        """What tells this family from another one that was trained with the same recipe."""
        return self.run.family_checksum

    def predictor(
        self, splits: Sequence[str], statistics: int | None, weights: Callable[[Any], Any] | None = None
    ) -> Predictor:
        """Return what predicts with any weights of the network, as fast as the device allows."""
        about = (self.recipe, self.images_of, self.execution)
        training = statistics_batches(*about)
        loaders = {name: evaluation_batches(getattr(self.images_of, name), *about) for name in splits}
        resident = all(isinstance(loader, ResidentLoader) for loader in (training, *loaders.values()))
        kind = CapturedPredictor if self.execution.graph and resident else Predictor
        return kind(
            self.family.midpoint(),
            self.task,
            loaders,
            training,
            weights=weights or self.weights,
            batches=min(len(training.sizes), statistics or len(training.sizes)),
            dtype=torch.bfloat16 if self.execution.precision == "bfloat16" else None,
            seed=statistics_seed(self.recipe),
        )

    def release(self) -> None:
        """Let go of the family, and of the test images on the device."""
        self.__dict__.pop("family", None)
        self.__dict__.pop("_tested", None)

    @cached_property
    def _tested(self) -> Images:
        """The test images, on the device if they fit."""
        test = self.images_of.test
        if isinstance(test, Split) and fits_memory(test, 0, self.execution):
            return Split(test.images.to(self.execution.device), test.labels.to(self.execution.device))
        return test

    @cached_property
    def _normalise(self) -> Callable[[Tensor], Tensor]:
        dtype = torch.bfloat16 if self.execution.precision == "bfloat16" else torch.float32
        data, how = self.images_of, self.execution
        made = Normalise(data.mean, data.std, how.device, how.channels_last, dtype)
        return lambda images: made(images.permute(0, 2, 3, 1))

    def tested(self) -> Iterable[Any]:
        """Return the test images, normalised, in large batches."""
        return (pictures.rebuild(pictures.images) for pictures in self.pictures(None, None))

    def named(self, name: str | Path) -> Data:
        """Return the test images of another data set, or a folder's, in the size and the colours of the run's own."""
        found = known_data(name)
        if found in (self.images_of.name, self.recipe.dataset):
            raise ArgumentError(f"outliers={found!r}: {self.name} was trained on it; expected another data set")
        shape = self.images_of.image_shape
        side = max(shape[1:])
        if isinstance(found, Path):
            paths = unlabelled.find(found)
            return Data(found.name, lambda: self._of_folder(found, paths, side), 0, OUTLIERS, f"folder {found}")
        test = self._others(found).test

        def batches() -> Iterator[Any]:
            return (self._batch(fitted(x, shape), labels) for x, labels in self._in_batches(test, side))

        return Data(found, batches, 0, OUTLIERS, "data")

    def _of_folder(self, folder: Path, paths: Sequence[Path], side: int) -> Iterator[Any]:
        device = self.execution.device
        for x in unlabelled.in_batches(folder, paths, side, batch_size(side * side, device)):
            labels = torch.zeros(len(x), dtype=torch.int64, device=device)  # which mean nothing
            yield self._batch(fitted(x.to(device), self.images_of.image_shape), labels)

    def check_alike(self, other: Subject) -> None:
        """Refuse a run with another data set or network."""
        if not isinstance(other, RunSubject):
            return
        for name, what in (("dataset", "data set"), ("fingerprint", "fingerprint"), ("network", "network")):
            ours, theirs = getattr(self.recipe, name), getattr(other.recipe, name)
            if ours != theirs:
                raise ArgumentError(
                    f"{self.run.folder} has the {what} {ours!r} and {other.run.folder} {theirs!r}: "
                    f"a plane goes through networks of one {what}"
                )

    def check_pictures(self, mean: Constants, std: Constants) -> None:
        """Refuse constants: a run knows its own."""
        if mean is not None or std is not None:
            raise ArgumentError(f"mean={mean}, std={std}: {self.name} is a run, which knows its own; expected none")

    def pictures(self, mean: Constants, std: Constants) -> Iterator[Pictures]:
        """Yield the test images in large batches."""
        side = self.images_of.image_shape[-1]
        for images, labels in self._in_batches(self._tested, round(side * VIEW)):
            yield Pictures(images, torch.uint8, partial(self._batch, labels=labels))

    def _batch(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return self._normalise(images), labels

    def batches(self, images: Images, mean: Constants, std: Constants) -> Iterator[Any]:
        """Yield other images, normalised with the constants of the run's data."""
        shape = self.images_of.image_shape
        if isinstance(images, Split) and images.images.shape[1:] != shape:
            found = " × ".join(map(str, images.images.shape[1:]))
            raise ArgumentError(
                f"images of {found}: {self.name} takes {' × '.join(map(str, shape))}; expected the same"
            )
        for x, labels in self._in_batches(images, shape[-1]):
            yield self._batch(x, labels)

    def _in_batches(self, images: Images, resize: int) -> Iterator[tuple[Tensor, Tensor]]:
        side = max(self.images_of.image_shape[1:])
        return in_batches(images, self.execution.device, self.execution.workers, side=side, resize=resize)

    def images(self, split: str, indices: Sequence[int], labels: Tensor) -> Tensor | None:
        """Return images of a split that is in memory, no larger than a page holds them."""
        images = getattr(getattr(self.images_of, split), "images", None)
        return small_pictures(_shrunk(images[list(indices)])) if isinstance(images, Tensor) else None


def known_data(name: str | os.PathLike[str]) -> str | Path:
    """Return the name of a data set, or the path of a folder that is there."""
    if name in NAMES and name != OWN:
        return str(name)
    folder = checks.folder("outliers", name)
    if not folder.is_dir():
        known = [each for each in NAMES if each != OWN]
        expected = f"{', '.join(known)} or the path of a folder with images{hint(str(name), known)}"
        raise ArgumentError(f"outliers={checks.shown(str(name))}: expected {expected}")
    return folder.resolve()


def _shrunk(images: Tensor) -> Tensor:
    """Return uint8 images whose sides are at most those of a small picture."""
    (height, width), most = images.shape[-2:], math.isqrt(SMALL)
    longer = max(height, width)
    if longer <= most:
        return images
    smaller = (max(1, most * height // longer), max(1, most * width // longer))
    return F.adaptive_avg_pool2d(images.float(), smaller).round().to(torch.uint8)


def run_subjects(
    data: str | os.PathLike[str] | None, execution: Execution, trust: bool = False
) -> Callable[[Run], RunSubject]:
    """Return a function that gives each run's subject, one for each folder, with data that runs may share."""
    data, execution = None if data is None else checks.folder("data", data), execution.resolved()

    read: dict[tuple[Any, ...], Dataset] = {}

    def load(recipe: Recipe) -> Dataset:
        if data_of(recipe) not in read:
            read[data_of(recipe)] = load_data(recipe, data)
        return read[data_of(recipe)]

    @cache
    def others(name: str) -> Dataset:
        return datasets.load(name, data)

    found: dict[Path, RunSubject] = {}

    def subject(run: Run) -> RunSubject:
        folder = run.folder.resolve()
        if folder not in found:
            with stop_on_signals() as stop:  # a run that another process trains is waited for
                free([run], set(), stop)
            found[folder] = RunSubject(run, partial(load, run.recipe), execution, trust, others)
        return found[folder]

    return subject


def share(subjects: Sequence[RunSubject], work: Callable[[RunSubject], R], stop: Stop) -> list[R]:
    """Do what is to be done with each run, together with other processes that do the same; see `locks.share`."""

    def checked(one: RunSubject) -> R:
        one.check()  # it may be trained anew by now
        return work(one)

    return locks.share(subjects, lambda one: one.run.attempt(), checked, lambda one: one.run.folder.name, stop)
