"""Finished runs as what is measured: their folders bring recipe, data and family."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from subspaces import storage
from subspaces.data import Dataset, ResidentLoader
from subspaces.evaluation.answers import Family
from subspaces.evaluation.predictor import CapturedPredictor, Predictor
from subspaces.evaluation.subject import Subject, small_pictures
from subspaces.evaluation.tasks import Classification
from subspaces.subspace import Subspace
from subspaces.training.batches import evaluation_batches, statistics_batches, statistics_seed
from subspaces.training.config import Execution
from subspaces.training.engine import build_family
from subspaces.training.runs import Run, RunError


class RunSubject(Subject):
    """A finished run, its data and its family on the device.

    With `trust` its network is built whoever trained it.
    """

    def __init__(self, run: Run, data: Callable[[], Dataset], execution: Execution, trust: bool = False) -> None:
        if trust is not True:
            run.check_invited()
        self.run = run
        self.check()
        self.recipe, self.execution, self._data = run.recipe, execution, data
        splits = ["test", *(["validation"] if run.recipe.validation else [])]
        super().__init__(run.folder.name, run.recipe.result_shape(), Classification(), splits, run.recipe.seed)
        self.answers = tuple(run.recipe.answers)

    @property
    def label(self) -> str:
        """What planes call it."""
        return f"{self.recipe.name} seed {self.recipe.seed}"

    def check(self) -> None:
        """Refuse a run that is not finished."""
        if not self.run.finished:
            lacking = "no trained family" if not self.run.family_file.is_file() else "no result"
            raise RunError(f"{self.run.folder} is not finished, it has {lacking}: train it to the end first")

    @property
    def terms(self) -> Family:
        """What answers may depend on: what the method calls its networks."""
        definition = self.recipe.definition
        return Family(self.shape, middle=definition.middle(), vertices=definition.members)

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
    def family(self) -> Subspace:
        """The trained family."""
        self.run.check_family(self.run.family_file)
        network = build_family(self.recipe, self.images_of, self.execution).midpoint()
        return storage.load(self.run.family_file, network, self.shape).to(self.execution.device)

    @cached_property
    def checksum(self) -> str:
        """What tells this family from another one that was trained with the same recipe."""
        return self.run.family_checksum

    def predictor(self, splits: Sequence[str], statistics: int | None) -> Predictor:
        """Return what predicts with any weights of the network."""
        return run_predictor(self, self.family.midpoint(), self.images_of, self.execution, splits, statistics)

    def release(self) -> None:
        """Let go of the family."""
        self.__dict__.pop("family", None)

    def images(self, split: str, indices: Sequence[int]) -> Tensor | None:
        """Return images of a split that is in memory and has small ones."""
        found = getattr(self.images_of, split)
        images = getattr(found, "images", None)
        return small_pictures(images[list(indices)]) if isinstance(images, Tensor) else None


def run_predictor(
    subject: RunSubject,
    network: nn.Module,
    dataset: Dataset,
    execution: Execution,
    splits: Sequence[str],
    statistics: int | None,
) -> Predictor:
    """Return what predicts with any weights of a run's network on a data set, as fast as the device allows."""
    recipe = subject.recipe
    training = statistics_batches(recipe, dataset, execution)
    loaders = {name: evaluation_batches(getattr(dataset, name), recipe, dataset, execution) for name in splits}
    batches = min(len(training.sizes), statistics or len(training.sizes))
    settings: dict[str, Any] = {
        "batches": batches,
        "expected_images": sum(training.sizes[:batches]),
        "device": torch.device(execution.device),
        "dtype": torch.bfloat16 if execution.precision == "bfloat16" else None,
        "seed": statistics_seed(recipe),
    }
    start = training.state_dict()

    def beginning() -> Iterable[Any]:
        if not isinstance(training, ResidentLoader):
            return statistics_batches(recipe, dataset, execution)
        training.load_state_dict(start)  # the same batches for every point
        return training

    resident = all(isinstance(loader, ResidentLoader) for loader in (training, *loaders.values()))
    if execution.graph and isinstance(training, ResidentLoader) and resident:
        return CapturedPredictor(network, subject.task, loaders, beginning, training=training, **settings)
    return Predictor(network, subject.task, loaders, beginning, **settings)
