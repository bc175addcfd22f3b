"""A small network with dropout, settings and independent predictions that the tests of studies share."""

import importlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pretended import Pretended
from torch import Tensor, nn

import subspaces as ss
from subspaces.experiments import data
from subspaces.experiments.training import RECIPES, Execution, Recipe, Run
from subspaces.experiments.training.batches import statistics_batches

STANDARD, LINE, SIMPLEX = (RECIPES[f"digits-{name}"] for name in ("standard", "line", "simplex"))
CPU = Execution(device="cpu").resolved()
QUIET: dict[str, Any] = {"show": "quiet", "tensorboard": False, "device": "cpu"}
SMALL: dict[str, Any] = {**QUIET, "epochs": 1, "validation": 200, "network": "study_cases:dropped"}

NO_FIGURE = "no figure: figures need matplotlib: pip install 'subspaces[figures]'"


def without_matplotlib(*_: Any) -> None:
    """In the place of what writes a figure: what happens where matplotlib is not installed."""
    raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")


def pretend(patch: pytest.MonkeyPatch, stand_in: Pretended) -> None:
    """Let studies train and measure with stand-ins."""
    for module in ("studies.setting", "studies.compare", "opening"):
        stand_in.patch(patch, f"subspaces.experiments.{module}")


def without_pictures(patch: pytest.MonkeyPatch) -> None:
    """Leave figures and pages out, which take their time."""
    patch.setattr("subspaces.experiments.studies.tables.write_figure", lambda *_: [])
    patch.setattr(
        importlib.import_module("subspaces.experiments.studies.compare"), "write_report", lambda evaluations, path: path
    )


class Dropped(nn.Module):
    """Two layers with batch norm and dropout."""

    def __init__(self, inputs: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 24), nn.BatchNorm1d(24), nn.ReLU())
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(24, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.body(x)))


def dropped(classes: int, image_shape: tuple[int, int, int], dropout: float) -> nn.Module:
    return Dropped(math.prod(image_shape), classes, dropout)


def load_data(recipe: Recipe) -> data.Dataset:
    return data.load("digits", label_noise=recipe.label_noise, validation=recipe.validation, seed=recipe.data_seed)


def network_of(folder: Path) -> nn.Module:
    """A run's midpoint with batch-norm statistics, in eval mode, without the evaluation's own code."""
    recipe = Run.open(folder).recipe
    family = ss.load(folder / "family.safetensors", lambda: Dropped(64, 10, recipe.dropout))
    torch.manual_seed(0)
    return ss.recalibrate(family.midpoint(), statistics_batches(recipe, load_data(recipe), CPU)).eval()


def images_of(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    dataset = load_data(Run.open(folder).recipe)
    part = getattr(dataset, split)
    return (part.images.float() / 255 - dataset.mean[0]) / dataset.std[0], part.labels
