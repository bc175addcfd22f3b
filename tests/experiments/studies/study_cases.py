"""A small network with dropout, and what tables must say, computed with numpy and scipy from the runs' records."""

import importlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from helpers import Dropped, dropped  # noqa: F401  # the network `study_cases:dropped`
from pretended import SPLITS, Pretended
from torch import Tensor, nn

import subspaces as ss
from subspaces.evaluation.evaluation import Evaluation
from subspaces.experiments import data
from subspaces.experiments.training import RECIPES, Execution, Recipe, Run
from subspaces.experiments.training.batches import statistics_batches

STANDARD, LINE, SIMPLEX = (RECIPES[f"digits-{name}"] for name in ("standard", "line", "simplex"))
CPU = Execution(device="cpu").resolved()
QUIET: dict[str, Any] = {"show": "quiet", "device": "cpu"}
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


METRICS = ("accuracy", "nll", "brier", "ece")
PLAIN = replace(STANDARD, validation=SPLITS["validation"])
DROPOUT = replace(PLAIN, name="digits-dropout", dropout=0.3)


read = cache(Evaluation.load)


def row_of(run: Run, answer: str, split: str = "test") -> dict[str, float]:
    """The metrics of an answer, read from the record of a run."""
    rows = [row for row in read(run.folder).rows if row.split == split and row.average != "logits"]
    wanted = {
        "network": lambda row: row.role == "midpoint",
        "midpoint": lambda row: row.role == "midpoint" and row.kind == "point",
        "ensemble of 0.1 and 0.9": lambda row: row.kind == "ensemble" and min(row.alphas) == 0.1,
        "ensemble of 3 vertices": lambda row: row.kind == "ensemble" and row.role == "vertex",
        "ensemble of 6 random points": lambda row: row.kind == "ensemble" and row.role == "random",
    }
    (row,) = filter(wanted[answer], rows)
    return row.metrics


@dataclass(frozen=True)
class Expected:
    """A metric of one entry over its seeds, and what stands against each value; None without a reference."""

    values: list[float]
    others: list[float] | None

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def std(self) -> float | None:
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def differences(self) -> list[float]:
        return np.subtract(self.values, self.others).tolist()

    @property
    def interval(self) -> tuple[float, float] | tuple[None, None]:
        n = len(self.values)
        if n < 2:
            return None, None
        half = scipy.stats.t.ppf(0.975, n - 1) * np.std(self.differences, ddof=1) / np.sqrt(n)
        return float(np.mean(self.differences) - half), float(np.mean(self.differences) + half)

    def written(self, metric: str) -> list[str]:
        """The lines of a cell: mean ± standard deviation, and the difference with its interval."""
        around = "" if self.std is None else f" ± {number(self.std, metric)}"
        lines = [f"{number(self.mean, metric)}{around}"]
        if self.others is not None:
            low, high = self.interval
            between = "" if low is None else f" [{signed(low, metric)}, {signed(high, metric)}]"
            lines.append(f"{signed(float(np.mean(self.differences)), metric)}{between}")
        return lines

    def check(self, found: dict[str, Any]) -> None:
        """Compare with what a JSON file says."""
        assert found["values"] == self.values
        assert (found["mean"], found["std"]) == approx(self.mean, self.std)

    def check_difference(self, found: dict[str, Any] | None) -> None:
        if self.others is None:
            assert found is None
            return
        assert found is not None
        assert found["values"] == approx(*self.differences, kind=list)
        assert (found["mean"], found["low"], found["high"]) == approx(np.mean(self.differences), *self.interval)
        assert found["low"] is None or found["low"] < found["mean"] < found["high"]

    def columns(self, metric: str) -> dict[str, float | None]:
        """The columns of a CSV file."""
        low, high = (None, None) if self.others is None else self.interval
        middle = None if self.others is None else float(np.mean(self.differences))
        return {
            f"{metric}_mean": self.mean,
            f"{metric}_std": self.std,
            f"{metric}_difference_mean": middle,
            f"{metric}_difference_low": low,
            f"{metric}_difference_high": high,
        }


def approx(*values: Any, kind: Any = tuple) -> Any:
    return kind(None if value is None else pytest.approx(value, rel=1e-9, abs=1e-12) for value in values)


def number(value: float, metric: str) -> str:
    return f"{100 * value:.2f}" if metric in ("accuracy", "ece") else f"{value:.4f}"


def signed(value: float, metric: str) -> str:
    return ("+" if value > 0 else "−") + number(abs(value), metric)


def check_csv(row: dict[str, str], expected: dict[str, float | None]) -> None:
    for name, value in expected.items():
        if value is None:
            assert row[name] == "", name
        else:
            assert (float(row[name]),) == approx(value), name


def cells_of(text: str) -> list[list[str]]:
    """The cells of every line of Markdown tables, headings and rules included."""
    rows = (line for line in text.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
