"""The best epoch of a training: its weights, and what another judge would have chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subspaces.core.family import Subspace
from subspaces.core.shapes import Point
from subspaces.errors import ArgumentError
from subspaces.experiments.methods.checkpoints import Rows, rows, spanned
from subspaces.experiments.methods.method import METHODS, Hooks, Method

SPLITS = ("validation", "test")


class Stopping(Hooks["EarlyStopping"]):
    """Keeps the weights of the epoch with the highest accuracy on validation images, the first of equals.

    The accuracy on test images is only noted beside it, to say what a choice on them would have given.
    """

    watch = 50

    def __init__(self, method: "EarlyStopping", family: Subspace, epochs: int, seed: int) -> None:
        super().__init__(method, family, epochs, seed)
        self.scores: list[tuple[float, float]] = []  # of each epoch, on validation and test images
        self.best: Rows = {}

    def after_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        validation, test = (scores[f"{split}_accuracy"] for split in SPLITS)
        if all(validation > before for before, _ in self.scores):
            self.best = rows(self.family)
        self.scores.append((validation, test))

    def result(self) -> Subspace:
        return spanned(self.family, [self.best], Point(), self.seed)

    @property
    def epoch(self) -> int:
        return int(self.summary()["stopping"][0]["epoch"])

    def summary(self) -> dict[str, Any]:
        """Return which epoch each split chooses, and its accuracies."""
        found = []
        for index, split in enumerate(SPLITS):
            column = [scores[index] for scores in self.scores]
            epoch = column.index(max(column))
            accuracies = {f"{name}_accuracy": self.scores[epoch][i] for i, name in enumerate(SPLITS)}
            found.append({"chosen_on": split, "epoch": epoch + 1, **accuracies})
        return {"stopping": found}

    def kept(self) -> dict[str, Tensor]:
        best = {f"best.{name}": row for name, row in self.best.items()}
        return best | {"scores": torch.tensor(self.scores, dtype=torch.float64).reshape(-1, 2)}

    def load(self, kept: Mapping[str, Tensor]) -> None:
        self.scores = [(validation, test) for validation, test in kept["scores"].tolist()]
        best = {key.removeprefix("best."): row for key, row in kept.items() if key != "scores"}
        self.best = {name: row.to(self.family.device) for name, row in best.items()}


@METHODS.add
@dataclass(frozen=True)
class EarlyStopping(Method):
    """One network, at its best epoch."""

    name = "early-stopping"
    meaning = "one network at its best epoch"
    hooks = Stopping

    def check(self, rest: Mapping[str, Any]) -> None:
        if not rest["validation"]:
            raise ArgumentError(
                f"validation={rest['validation']}: early-stopping chooses its epoch on held-out images; hold some out, "
                "such as --validation 5000"
            )
