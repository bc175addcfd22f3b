"""Finished runs as what is measured: their folders bring recipe, data and family."""

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from subspaces.core import checks, storage
from subspaces.core.family import Subspace
from subspaces.errors import ArgumentError
from subspaces.evaluation.measuring import Data
from subspaces.evaluation.points import Family
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.rows import OUTLIERS, SMALL, small_pictures
from subspaces.evaluation.subject import Constants, Pictures, Subject
from subspaces.evaluation.tasks import Classification
from subspaces.experiments import data as datasets
from subspaces.experiments import locks
from subspaces.experiments.data import NAMES, Dataset, ResidentLoader
from subspaces.experiments.data.loading import OWN
from subspaces.experiments.evaluating.captured import CapturedPredictor
from subspaces.experiments.evaluating.training import training_of_run
from subspaces.experiments.training import Execution
from subspaces.experiments.training.batches import (
    evaluation_batches,
    load_data,
    statistics_batches,
    statistics_seed,
)
from subspaces.experiments.training.engine import build_family
from subspaces.experiments.training.recipe import Recipe, data_of
from subspaces.experiments.training.runs import Run, RunError, free
from subspaces.experiments.training.signals import Stop, stop_on_signals
from subspaces.images.decoding import centre_view, decode
from subspaces.images.splits import Files, Images, Normalise, grey
from subspaces.text import hint

R = TypeVar("R")
VIEW = 256 / 224  # of files, to which the shorter side is scaled before the middle is taken, as in `StreamingLoader`
PIXELS = 2000 * 32 * 32  # of a batch on a GPU
LEAST = 250  # images in one, and on a CPU
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
        self.run, self.recipe, self.execution, self._data, self._others = run, run.recipe, execution, data, others
        self.check()
        recipe, shape, definition = run.recipe, run.recipe.result_shape(), run.recipe.definition
        splits = ["test", *(["validation"] if recipe.validation else [])]
        super().__init__(
            run.folder.name,
            shape,
            Classification(),
            dict.fromkeys(splits, ()),  # which `predictor` makes
            dataclasses.asdict(execution),
            seed=recipe.seed,
            label=f"{recipe.name} seed {recipe.seed}",
            answers=tuple(recipe.answers),
            terms=Family(shape, middle=definition.middle(), vertices=definition.members),
            extra={"batch": recipe.batch},
            common={"data set": recipe.dataset, "fingerprint": recipe.fingerprint, "network": recipe.network},
            checksum=run.family_checksum,
            folder=run.folder,
        )

    def check(self) -> None:
        """Refuse a run that is not finished."""
        if not self.run.finished:
            lacking = "no trained family" if not self.run.family_file.is_file() else "no result"
            raise RunError(f"{self.run.folder} is not finished, it has {lacking}: train it to the end first")
        self.checksum = self.run.family_checksum  # it may be trained anew by now

    def trained(self, statistics: dict[str, Any]) -> dict[str, Any]:
        """Return the recipe, and how the run was trained."""
        return {"recipe": self.recipe.to_dict(), "training": training_of_run(self.run, statistics)}

    @cached_property
    def images_of(self) -> Dataset:
        """The data of the run, with its label noise and its held-out images."""
        return self._data()

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
        """Free the family; it is read again when it is needed."""
        self.__dict__.pop("family", None)

    def _batch(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        data, how = self.images_of, self.execution
        dtype = torch.bfloat16 if how.precision == "bfloat16" else torch.float32
        normalise = Normalise(data.mean, data.std, how.device, how.channels_last, dtype)
        return normalise(images.permute(0, 2, 3, 1)), labels

    def _in_batches(self, images: Images, resize: int) -> Iterator[tuple[Tensor, Tensor]]:
        side = max(self.images_of.image_shape[1:])
        return in_batches(images, self.execution.device, self.execution.workers, side=side, resize=resize)

    def pictures(self, mean: Constants = None, std: Constants = None) -> Iterator[Pictures]:
        """Yield the test images in large batches."""
        side = self.images_of.image_shape[-1]
        for images, labels in self._in_batches(self.images_of.test, round(side * VIEW)):
            yield Pictures(images, partial(self._batch, labels=labels))

    def images(self, split: str, indices: Sequence[int], labels: Tensor) -> Tensor | None:
        """Return images of a split that is in memory, no larger than a page holds them."""
        images = getattr(getattr(self.images_of, split), "images", None)
        return small_pictures(_shrunk(images[list(indices)])) if isinstance(images, Tensor) else None

    def named(self, name: str) -> Data:
        """Return the test images of another data set, in the size and the colours of the run's own."""
        found = known_data(name)
        if found in (self.images_of.name, self.recipe.dataset):
            raise ArgumentError(f"outliers={found!r}: {self.name} was trained on it; expected another data set")
        return Data(found, partial(self._fitted, self._others(found).test), 0, OUTLIERS, "data")

    def _fitted(self, images: Images) -> Iterator[Any]:
        shape = self.images_of.image_shape
        for x, labels in self._in_batches(images, max(shape[1:])):
            yield self._batch(fitted(x, shape), labels)


def known_data(name: str) -> str:
    """Return the name of a data set that comes with the package."""
    known = [each for each in NAMES if each != OWN]
    if name not in known:
        raise ArgumentError(
            f"outliers={checks.shown(name)}: expected {', '.join(known)}{hint(name, known)}; pass other images as "
            "loaders to ss.evaluate(run, outliers={name: loader})"
        )
    return name


def in_batches(
    images: Images, device: torch.device | str, workers: int | None = None, *, side: int, resize: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield images as bytes [n, C, H, W] and their labels, in their order, on a device.

    Those in memory stay as they are. Of files the shorter side is scaled to `resize` and the middle of `side` x `side`
    is taken, by so many threads, by default one per core.
    """
    pixels = side * side if isinstance(images, Files) else max(images.images.shape[-2:].numel(), side * side)
    size = max(LEAST, PIXELS // pixels) if torch.device(device).type == "cuda" else LEAST
    at_once = min(os.cpu_count() or 1, 16) if workers is None else workers
    for first in range(0, len(images), size):
        part = slice(first, first + size)
        if isinstance(images, Files):
            paths = [images.path(index) for index in range(first, min(first + size, len(images)))]
            with ThreadPoolExecutor(max(1, at_once)) as pool:  # Pillow decodes outside the interpreter's lock
                views = np.stack(list(pool.map(lambda path: centre_view(decode(path), resize, side), paths)))
            x = torch.from_numpy(views).permute(0, 3, 1, 2).contiguous()
        else:
            x = images.images[part]
        yield x.to(device), images.labels[part].to(device)


def fitted(images: Tensor, shape: Sequence[int]) -> Tensor:
    """Return bytes [n, C, H, W] as images of another shape: grey or in colour, and resized."""
    channels, height, width = shape
    if images.shape[1:] == (channels, height, width):
        return images
    x = images.float()
    if channels == 1 and images.shape[1] == 3:
        x = grey(x)
    if x.shape[-2:] != (height, width):
        x = F.interpolate(x, (height, width), mode="bilinear", antialias=True)
    return x.expand(-1, channels, -1, -1).round().clamp(0, 255).to(torch.uint8)


def _shrunk(images: Tensor) -> Tensor:
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
        one.check()
        return work(one)

    return locks.share(subjects, lambda one: one.run.attempt(), checked, lambda one: one.run.folder.name, stop)
