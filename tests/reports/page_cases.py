"""Runs whose numbers all differ, and what a page of them has to show, worked out from their records alone."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import made_runs
import numpy as np

from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import of_task
from subspaces.evaluation.rows import Choice, Examples, Row
from subspaces.experiments.training import Run

METRICS = {  # name: label, percent, higher is better, in the order of the page
    each.name: (each.label[0].upper() + each.label[1:], each.percent, not each.lower_is_better)
    for each in of_task("classification")
}
LABELS = {"standard": "standard", "line": "line", "curve": "curve", "simplex": "simplex (m = 3)"}
SEEDS = (0, 1, 2)
IMAGES = {"validation": 60, "test": 120}
CLASSES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
CLOSE = {"line": (0.01, 0.011, 0.012), "curve": (0.0101, 0.011, 0.0122)}  # both are shown as 1.1 %
Array = np.ndarray


def scale(metric: str) -> float:
    return 100.0 if METRICS[metric][1] else 1.0


def digits(metric: str) -> int:
    return 1 if METRICS[metric][1] else 3


class Recorded:
    """Four recipes with three seeds each, evaluated on held-out and on test images."""

    def __init__(self, out: Path) -> None:
        self.runs = {name: [self._made(out, name, seed) for seed in SEEDS] for name in LABELS}
        self.folders = [folder for folders in self.runs.values() for folder in folders]
        self.records = {name: [Evaluation.load(folder) for folder in folders] for name, folders in self.runs.items()}

    def _made(self, out: Path, name: str, seed: int) -> Path:
        folder = made_runs.run(out, name, splits=dict(IMAGES), planes=False, validation=60, seed=seed)
        record = Evaluation.load(folder)
        record.dataset["classes"] = CLASSES
        record.environment = {**record.environment, "hardware": "another machine"}
        if (name, seed) == ("line", 0):
            record.choices += chosen(record)
        for row in record.rows:
            if row.split == "test" and is_pair(0.1, "probabilities")(row):
                row.metrics["aurc"] = CLOSE[name][seed]
        if (name, seed) in (("line", 0), ("line", 1), ("simplex", 2), ("standard", 1)):
            record.planes.append(made_runs.plane(10 * len(name) + seed, "validation", 60))
        if (name, seed) == ("curve", 1):
            record.examples = without(record.examples, 3)
        record.save(folder)
        return folder

    def rows(self, name: str, seed: int, wanted: Callable[[Row], bool], split: str = "test") -> list[Row]:
        return [row for row in self.records[name][seed].rows if row.split == split and wanted(row)]

    def each(self, name: str, wanted: Callable[[Row], bool], split: str = "test") -> Array:
        """Return the metrics of some rows of every seed [seeds, rows, metrics]."""
        found = [self.rows(name, seed, wanted, split) for seed in SEEDS]
        return np.array([[[row.metrics[metric] for metric in METRICS] for row in rows] for rows in found])

    def along(self, name: str) -> tuple[list[float], Array]:
        """Return the points of a line or curve, and their metrics [seeds, points, metrics]."""
        alphas = [row.alphas[0] for row in self.rows(name, 0, is_point)]
        order = np.argsort(alphas)
        return [alphas[at] for at in order], self.each(name, is_point)[:, order]

    def together(self, name: str, average: str) -> tuple[list[float], Array]:
        """Return every alpha, and the metrics of its ensemble with 1 - alpha [seeds, points, metrics]."""
        alphas, _ = self.along(name)
        found = [self.each(name, is_pair(alpha, average))[:, 0] for alpha in alphas]
        return alphas, np.stack(found, axis=1)

    def ways(self) -> dict[tuple[str, str], tuple[Array, int]]:
        """Return the metrics [seeds, metrics] of every way to predict, and its networks at test."""
        found = {("standard", "network"): (self.each("standard", is_point)[:, 0], 1)}
        for name in ("line", "curve"):
            ends = self.each(name, lambda row: is_point(row) and row.alphas[0] in (0.0, 1.0))
            found[name, "ends, on average"] = (ends.mean(1), 1)
            found[name, "midpoint"] = (self.each(name, is_middle)[:, 0], 1)
            pair = self.each(name, is_pair(0.1, "probabilities"))[:, 0]
            found[name, "ensemble of 0.1 and 0.9"] = (pair, 2)
        vertices = self.each("simplex", lambda row: is_point(row) and row.role == "vertex")
        found["simplex", "vertices, on average"] = (vertices.mean(1), 1)
        found["simplex", "midpoint"] = (self.each("simplex", is_middle)[:, 0], 1)
        for words, role, count in (("3 vertices", "vertex", 3), ("6 random points", "random", 6)):
            found["simplex", f"ensemble of {words}"] = (self.each("simplex", is_ensemble(role))[:, 0], count)
        return found

    def logged(self, name: str, column: str) -> Array:
        """Return a column of the logs [seeds, epochs]."""
        return np.array([[row[column] for row in Run.open(folder).log()] for folder in self.runs[name]])


# Rows


def is_point(row: Row) -> bool:
    return row.kind == "point" and not row.group


def is_middle(row: Row) -> bool:
    return row.kind == "point" and row.role == "midpoint" and not row.group


def is_pair(alpha: float, average: str) -> Callable[[Row], bool]:
    """Return what finds the ensemble of alpha and 1 - alpha."""

    def found(row: Row) -> bool:
        if row.group or row.kind != "ensemble" or row.role != "along" or row.average != average:
            return False
        return min(abs(row.alphas[0] - one) for one in (alpha, 1 - alpha)) < 1e-9

    return found


def is_ensemble(role: str, average: str = "probabilities") -> Callable[[Row], bool]:
    return lambda row: (row.kind, row.role, row.average, row.group) == ("ensemble", role, average, "")


def deviation(values: Array) -> Array:
    """Return the standard deviation over the first axis, written out."""
    away = values - values.sum(0) / len(values)
    return np.sqrt((away**2).sum(0) / (len(values) - 1))


# What made_runs has none of


def chosen(record: Evaluation) -> list[Choice]:
    """Return choices on the test set: a pair by its NLL."""
    pair = next(row for row in record.rows if is_pair(0.2, "probabilities")(row) and row.split == "test")
    same = [row for row in record.rows if (row.alphas, row.average) == (pair.alphas, pair.average)]
    return [Choice("pair", "nll", "test", True, pair.alphas, {row.split: dict(row.metrics) for row in same})]


def without(examples: Examples | None, place: int) -> Examples:
    """Return examples that know nothing of one point."""
    assert examples is not None
    kept = [at for at in range(len(examples.alphas)) if at != place]
    parts = {name: [getattr(examples, name)[at] for at in kept] for name in ("alphas", "predicted", "confidence")}
    return dataclasses.replace(examples, **parts)
