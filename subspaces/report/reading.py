"""The records and logs of several runs, grouped by recipe over seeds."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subspaces.evaluation.examples import Examples
from subspaces.evaluation.integrity import measured_of
from subspaces.evaluation.points import kind
from subspaces.evaluation.record import Record, Row
from subspaces.evaluation.statistics import deviation
from subspaces.report.naming import labels, place
from subspaces.text import nearest
from subspaces.training.config import Recipe
from subspaces.training.runs import Run, RunError

Array = NDArray[np.float64]


class Reading:
    """A run and what was measured of it: as given, or each of its files read when it is asked for."""

    def __init__(self, run: Run | str | os.PathLike[str], record: Record | None = None) -> None:
        self.run = run if isinstance(run, Run) else Run.open(run)
        self.folder: Path = self.run.folder
        self.recipe: Recipe = self.run.recipe
        if record is not None:
            self.record = record

    @cached_property
    def record(self) -> Record:
        """What was measured of the run."""
        return measured_of(self.run)

    @property
    def examples(self) -> Examples | None:
        """Images whose predicted class changes along the subspace, if there are any."""
        return Examples.of(self.record, self.folder)

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """One row per epoch."""
        return self.run.log()

    @property
    def single(self) -> bool:
        """Whether the run is of one network."""
        return self.vertices == 1

    @property
    def interval(self) -> bool:
        """Whether alpha is a number: a line or a curve."""
        return kind(self.recipe.result_shape()) == "interval"

    @property
    def vertices(self) -> int:
        """How many vertices the run has; a single network has one."""
        return self.recipe.result_shape().vertices

    @property
    def trained_alone(self) -> bool:
        """Whether one network was trained, whatever was made of it: its log knows no distance between vertices."""
        return self.recipe.shape().vertices == 1

    @property
    def training_seconds(self) -> float | None:
        """The time that the steps of training took, from the speed of each epoch; None where it is not known.

        The images of an epoch are those of the batch-norm statistics, where these are of all training images.
        """
        statistics = self.record.statistics
        images = 0 if statistics.get("batches") else int(statistics.get("images") or 0)
        speeds = [float(row.get("images_per_second") or 0) for row in self.log]
        return sum(images / speed for speed in speeds) if images and speeds and all(speeds) else None

    def rows(self, split: str) -> list[Row]:
        """Return what was measured on a split, or say which splits there are."""
        found = [row for row in self.record.rows if row.split == split]
        if not found:
            there = list(dict.fromkeys(row.split for row in self.record.rows))
            hint = nearest(split, there) if there else f"run `subspaces evaluate {self.folder}`"
            raise RunError(f"{self.folder} was not evaluated on {split!r}: {hint}")
        return found

    def points(self, split: str) -> dict[float, Row]:
        """Return the points of a line or curve by alpha, in order."""
        rows = [row for row in self.rows(split) if row.kind == "point" and row.role in ("along", "midpoint")]
        return _by_alpha(rows) if self.interval else {}

    def pairs(self, split: str, average: str = "probabilities") -> dict[float, Row]:
        """Return the ensembles of alpha and 1 - alpha of a line or curve by the smaller of them, in order."""
        rows = [row for row in self.rows(split) if row.kind == "ensemble" and row.role == "along"]
        return _by_alpha([row for row in rows if row.average == average]) if self.interval else {}


def _by_alpha(rows: Iterable[Row]) -> dict[float, Row]:
    found = {min(float(alpha) for alpha in row.alphas if not isinstance(alpha, list)): row for row in rows}
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Curve:
    """A number along a grid, for each seed."""

    grid: Array  # [points]
    values: Array  # [seeds, points]

    @property
    def mean(self) -> Array:
        """The mean over seeds."""
        return np.asarray(self.values.mean(0))

    @property
    def std(self) -> Array:
        """The standard deviation over seeds (n - 1 in the denominator); 0 for one seed."""
        return deviation(self.values)


@dataclass(frozen=True)
class Group:
    """Runs of one recipe that differ in their seed only."""

    label: str
    runs: list[Reading]

    @property
    def recipe(self) -> Recipe:
        """The recipe, with the seed of the first run."""
        return self.runs[0].recipe

    @property
    def seeds(self) -> list[int]:
        """The seeds of the runs."""
        return [run.recipe.seed for run in self.runs]

    def along(self, metric: str, split: str, ensemble: bool = False, average: str = "probabilities") -> Curve:
        """Return a metric of the points, or of the ensembles of alpha and 1 - alpha, that all seeds have."""
        found = [run.pairs(split, average) if ensemble else run.points(split) for run in self.runs]
        grid = [alpha for alpha in found[0] if all(alpha in rows for rows in found)]
        if len(grid) < 2 <= max(map(len, found)):
            raise RunError(f"the runs of {self.label!r} were evaluated at different alphas: evaluate them alike")
        return Curve(np.array(grid), np.array([[value(rows[alpha], metric) for alpha in grid] for rows in found]))

    def logged(self, name: str) -> Curve:
        """Return a column of the logs over the epochs in which every seed has it."""
        columns = [{int(row["epoch"]): float(row[name]) for row in run.log if name in row} for run in self.runs]
        epochs = sorted(set.intersection(*map(set, columns)))
        return Curve(np.array(epochs, float), np.array([[column[epoch] for epoch in epochs] for column in columns]))


def value(row: Row, metric: str) -> float:
    """Return a metric of a row, or name the nearest one."""
    if metric not in row.metrics:
        raise ValueError(f"metric={metric!r}: {nearest(metric, row.metrics)}")
    return row.metrics[metric]


def gather(folders: Iterable[str | os.PathLike[str]], evaluated: bool = True) -> list[Group]:
    """Read runs on one data set and group them by recipe: single networks, lines, curves, simplexes."""
    unique = dict.fromkeys(folder.resolve() for folder in Run.begun(folders))
    runs = [Reading(folder) for folder in unique]
    if not runs:
        raise ValueError("no runs were given: expected one run folder or more")
    for run in runs[1:]:
        _same_data(runs[0], run)
    if evaluated:
        for run in runs:
            _same_images(runs[0], run)
    return grouped(runs)


def grouped(runs: Iterable[Reading]) -> list[Group]:
    """Group runs on one data set by recipe: single networks, lines, curves, simplexes."""
    groups: dict[tuple[Any, ...], list[Reading]] = {}
    for run in runs:
        members = groups.setdefault(tuple(run.recipe.distinguishing().items()), [])
        twin = next((other for other in members if other.recipe.seed == run.recipe.seed), None)
        if twin is not None:
            raise RunError(f"{twin.folder} and {run.folder} are the same run: leave one of them out")
        members.append(run)
    ordered = [sorted(members, key=lambda run: run.recipe.seed) for members in groups.values()]
    ordered.sort(key=lambda members: place(members[0].recipe))
    named = labels([members[0].recipe for members in ordered])
    return [Group(label, members) for label, members in zip(named, ordered, strict=True)]


def _same_data(first: Reading, other: Reading) -> None:
    if first.recipe.dataset != other.recipe.dataset:
        raise RunError(
            f"{first.folder} is of {first.recipe.dataset!r} and {other.folder} of {other.recipe.dataset!r}: "
            "expected runs on one data set"
        )


def _same_images(first: Reading, other: Reading) -> None:
    """Refuse evaluations on parts of the test set that differ: they would be compared."""
    ours, theirs = (run.record.dataset.get("splits", {}).get("test") for run in (first, other))
    if ours != theirs:
        raise RunError(
            f"{first.folder} was evaluated with {ours} test images and {other.folder} with {theirs}: "
            "evaluate them alike"
        )
