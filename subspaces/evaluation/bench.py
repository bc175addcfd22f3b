"""A run with all that it takes to measure it, each part made when it is first needed."""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from subspaces import storage
from subspaces.data import Dataset
from subspaces.evaluation.points import Place, to_alpha
from subspaces.evaluation.predictor import Predictor
from subspaces.subspace import Subspace
from subspaces.training.config import Execution
from subspaces.training.engine import build_family
from subspaces.training.runs import Run, RunError


class Bench:
    """A finished run, its data and its family on the device.

    With `trust` its network is built whoever trained it.
    """

    def __init__(self, run: Run, data: Callable[[], Dataset], execution: Execution, trust: bool = False) -> None:
        if trust is not True:
            run.check_invited()
        self.run = run
        self.check()
        self.recipe = run.recipe
        self.shape = run.recipe.result_shape()
        self.execution = execution
        self.splits = ["test", *(["validation"] if run.recipe.validation else [])]
        self._data = data

    def check(self) -> None:
        """Refuse a run that is not finished."""
        if not self.run.finished:
            lacking = "no trained family" if not self.run.family_file.is_file() else "no result"
            raise RunError(f"{self.run.folder} is not finished, it has {lacking}: train it to the end first")

    @cached_property
    def dataset(self) -> Dataset:
        """The data of the run, with its label noise and its held-out images."""
        return self._data()

    @cached_property
    def family(self) -> Subspace:
        """The trained family."""
        self.run.check_family(self.run.family_file)
        network = build_family(self.recipe, self.dataset, self.execution).midpoint()
        return storage.load(self.run.family_file, network, self.shape).to(self.execution.device)

    @cached_property
    def checksum(self) -> str:
        """What tells this family from another one that was trained with the same recipe."""
        return self.run.family_checksum

    def predictor(self, splits: Sequence[str], statistics: int | None) -> Predictor:
        """Return what predicts with any weights of the network."""
        return Predictor(
            self.family.midpoint(), self.recipe, self.dataset, self.execution, splits, statistics=statistics
        )

    @torch.no_grad()
    def weights(self, place: Place) -> dict[str, Tensor]:
        """Return the weights at a point, on the subspace or off it."""
        return self.family.theta(self.family.coefficients(to_alpha(place), outside=True))
