"""Runs that can be trained anew to another family with the same recipe, as other hardware or versions would do it."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

import subspaces as ss
from subspaces.experiments.training import Run

SETTINGS: dict[str, Any] = {"epochs": 1, "batch": 300, "validation": 200, "network": "retrained:network"}
QUIET: dict[str, Any] = {"show": "quiet", "device": "cpu"}
MEASURED = ("evaluation.json", "measurements.jsonl", "integral.json")
GAIN = 1.0


class Small(nn.Module):
    """One hidden layer with batch norm and dropout."""

    def __init__(self, inputs: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 12), nn.BatchNorm1d(12), nn.ReLU())
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(12, classes)
        self.head.weight.data *= GAIN

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.body(x)))


def network(classes: int, image_shape: tuple[int, int, int], dropout: float) -> nn.Module:
    return Small(math.prod(image_shape), classes, dropout)


def train(recipe: str, out: Path, **changes: Any) -> Path:
    """Train a recipe of digits with the small network, and return its folder."""
    (run,) = ss.train(f"digits-{recipe}", out=out, **{**SETTINGS, **QUIET, **changes})
    return run.folder


def opened(folder: Path) -> Run:
    """Return the run of a folder as if the caller had named its network."""
    return Run(folder, Run.open(folder).recipe)


def anew(folder: Path) -> None:
    """Train a finished run once more, in its folder, to another family; what was measured stays where it is."""
    recipe = Run.open(folder).recipe
    (folder / "result.json").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("retrained.GAIN", 3.0)
        ss.train(recipe, out=folder.parent, **QUIET)


def unmeasured(folder: Path, to: Path) -> Path:
    """Return a copy of a run of which nothing is measured."""
    return Path(shutil.copytree(folder, to / folder.name, ignore=shutil.ignore_patterns(*MEASURED)))
