"""The records and logs of several runs, grouped by recipe over seeds."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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
from subspaces.methods import METHODS
from subspaces.text import nearest
from subspaces.training.config import Recipe, all_fields
from subspaces.training.runs import Run, RunError

Array = NDArray[np.float64]
PAIR = 0.1  # the ensemble shown where one stands for all is that of 0.1 and 0.9: fixed beforehand, not chosen
ABSENT = ("validation", "dropout", "label_smoothing", "trunk", "branch")  # not worth a word where they are 0


class Reading:
    """The files of one run, each read when it is asked for."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.run = Run.open(folder)
        self.folder: Path = self.run.folder
        self.recipe: Recipe = self.run.recipe

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

    def center(self, split: str) -> Row | None:
        """Return the midpoint; of a single network the network itself."""
        points = [row for row in self.rows(split) if row.kind == "point"]
        return next((row for row in points if self.single or row.role == "midpoint"), None)

    def ensemble(self, split: str, average: str = "probabilities") -> Row | None:
        """Return the ensemble that stands for the run: of 0.1 and 0.9, or of a simplex's vertices."""
        if self.interval:
            pairs = self.pairs(split, average)
            return pairs[min(pairs, key=lambda alpha: abs(alpha - PAIR))] if pairs else None
        rows = [row for row in self.rows(split) if row.kind == "ensemble" and row.average == average]
        for role in ("vertex", "random"):
            for row in rows:
                if row.role == role:
                    return row
        return None


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

    def center(self, metric: str, split: str) -> Curve:
        """Return a metric of the midpoint, or of a single network, as a curve of one point."""
        return self._one(metric, split, lambda run: run.center(split), "midpoint")

    @property
    def answers_together(self) -> bool:
        """Whether the method answers with the ensemble of its members, and its midpoint means nothing."""
        return self.recipe.answers[0] == "vertices"

    def answer(self, metric: str, split: str) -> Curve:
        """Return a metric of the method's own answer, its midpoint or the ensemble of its members, as one point."""
        return self.ensemble(metric, split) if self.answers_together else self.center(metric, split)

    def ensemble(self, metric: str, split: str, average: str = "probabilities") -> Curve:
        """Return a metric of the ensemble that stands for each run, as a curve of one point."""
        return self._one(metric, split, lambda run: run.ensemble(split, average), "ensemble")

    def _one(self, metric: str, split: str, pick: Callable[[Reading], Row | None], what: str) -> Curve:
        values = []
        for run in self.runs:
            row = pick(run)
            if row is None:
                raise RunError(f"{run.folder} has no {what} on {split!r}: run `subspaces evaluate {run.folder}`")
            values.append([value(row, metric)])
        return Curve(np.zeros(1), np.array(values))

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
    groups: dict[tuple[Any, ...], list[Reading]] = {}
    for run in runs:
        members = groups.setdefault(tuple(run.recipe.distinguishing().items()), [])
        twin = next((other for other in members if other.recipe.seed == run.recipe.seed), None)
        if twin is not None:
            raise RunError(f"{twin.folder} and {run.folder} are the same run: leave one of them out")
        members.append(run)
    ordered = [sorted(members, key=lambda run: run.recipe.seed) for members in groups.values()]
    ordered.sort(key=lambda members: _place(members[0].recipe))
    labels = _labels([members[0].recipe for members in ordered])
    return [Group(label, members) for label, members in zip(labels, ordered, strict=True)]


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


def _place(recipe: Recipe) -> tuple[Any, ...]:
    """Return what groups are sorted by: the order in which a shell lists folders means nothing."""
    own = recipe.definition.own().values()
    return (list(METHODS).index(recipe.method), *own, *recipe.distinguishing().values())


def _labels(recipes: Sequence[Recipe]) -> list[str]:
    """Return the method of each recipe in words, with the fields in which it is not as usual among the recipes.

    A field has one usual value at most, so of two recipes that differ in it one label or both tell it.
    """
    fields = [recipe.distinguishing() for recipe in recipes]
    known = {name: entry.metadata for name, entry in all_fields().items()}
    names = [name for name in known if name != "method" and "label" not in known[name]]
    usual = {name: _usual(name, [each[name] for each in fields if name in each]) for name in names}
    labels = []
    for recipe, each in zip(recipes, fields, strict=True):
        there = [name for name in names if name in each and each[name] not in usual[name]]
        settings = [f"{known[name].get('symbol') or name.replace('_', ' ')} = {_short(each[name])}" for name in there]
        labels.append(", ".join([recipe.definition.label(), *settings]))
    return labels


def _usual(name: str, values: Sequence[Any]) -> list[Any]:
    """Return the value that goes without saying: that of all, 0 of what is absent then, or that of more than half."""
    if name in ABSENT and len(set(values)) > 1:
        return [0]
    return [value for value, count in Counter(values).items() if 2 * count > len(values)]


def _short(setting: Any) -> str:
    """Return a setting as short as it can be told exactly."""
    return f"{setting:g}" if isinstance(setting, float) and float(f"{setting:g}") == setting else str(setting)
