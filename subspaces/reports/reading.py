"""The records and logs of several runs, grouped by recipe over seeds."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation.curves import Curve
from subspaces.evaluation.integrity import measured_of
from subspaces.evaluation.points import kind
from subspaces.evaluation.record import Record, Row
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run, RunError
from subspaces.reports.naming import labels, place
from subspaces.text import nearest

Array = NDArray[np.float64]
Source = str | os.PathLike[str] | Run | Record
"""A run, its folder, an evaluation, or the file of one."""


class Reading:
    """What is known of one family: an evaluation, and of a run its recipe and log, each read when it is asked for.

    `record` is the evaluation of a run, where it is at hand.
    """

    def __init__(self, source: Source, record: Record | None = None) -> None:
        self.run: Run | None = None
        if isinstance(source, Record):
            record, self.folder = source, Path(source.name)
        elif not isinstance(source, Run) and Path(source).is_file():
            record, self.folder = Record.read(Path(source)), Path(source)
        else:
            self.run = source if isinstance(source, Run) else Run.open(source)
            self.folder = self.run.folder
        self.recipe: Recipe | None = None if self.run is None else self.run.recipe
        if record is not None:
            self.record = record
            if self.run is None and record.recipe is not None:  # the evaluation of a run, in hand or in a file
                self.recipe = Recipe.from_dict(record.recipe)

    @cached_property
    def record(self) -> Record:
        """What was measured."""
        assert self.run is not None
        return measured_of(self.run)

    @property
    def name(self) -> str:
        """What it is called."""
        return self.record.name if self.run is None else self.folder.name

    @property
    def seed(self) -> int:
        """The seed of a run; 0 of any other family."""
        return 0 if self.recipe is None else self.recipe.seed

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """One row per epoch; none of a family that is no run."""
        return [] if self.run is None else self.run.log()

    @cached_property
    def shape(self) -> dict[str, Any]:
        """What alpha is ("kind"), how many vertices there are, and what they are called ("members")."""
        if self.recipe is None:
            return self.record.shape
        shape = self.recipe.result_shape()
        return {"kind": kind(shape), "vertices": shape.vertices, "members": self.recipe.definition.members}

    @property
    def single(self) -> bool:
        """Whether it is one network."""
        return bool(self.shape["kind"] == "single")

    @property
    def interval(self) -> bool:
        """Whether alpha is a number: a line or a curve."""
        return bool(self.shape["kind"] == "interval")

    @property
    def vertices(self) -> int:
        """How many vertices it has; a single network has one."""
        return int(self.shape["vertices"])

    @property
    def trained_alone(self) -> bool:
        """Whether one network was trained, whatever was made of it: its log knows no distance between vertices."""
        return self.recipe is None or self.recipe.shape().vertices == 1

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
            there = self.record.splits
            hint = nearest(split, there) if there else f"run `subspaces evaluate {self.folder}`"
            raise RunError(f"{self.folder} was not evaluated on {split!r}: {hint}")
        return found

    def points(self, split: str) -> dict[float, Row]:
        """Return the points of a line or curve by alpha, in order."""
        rows = [row for row in self.rows(split) if row.kind == "point" and row.role in ("along", "midpoint")]
        return _by_alpha(rows) if self.interval else {}

    def pairs(self, split: str, average: str | None = None) -> dict[float, Row]:
        """Return the ensembles of alpha and 1 - alpha of a line or curve by the smaller of them, in order.

        Members are averaged as `average` says, or as is usual for the task: that comes first in a record.
        """
        rows = [row for row in self.rows(split) if row.kind == "ensemble" and row.role == "along"]
        wanted = average or (rows[0].average if rows else None)
        return _by_alpha([row for row in rows if row.average == wanted]) if self.interval else {}


def _by_alpha(rows: Iterable[Row]) -> dict[float, Row]:
    numbers = [(row, [float(alpha) for alpha in row.alphas if not isinstance(alpha, list)]) for row in rows]
    return dict(sorted({min(alphas): row for row, alphas in numbers if alphas}.items()))


@dataclass(frozen=True)
class Group:
    """Runs of one recipe that differ in their seed only."""

    label: str
    runs: list[Reading]

    @property
    def recipe(self) -> Recipe | None:
        """The recipe, with the seed of the first run; None for a family that is no run."""
        return self.runs[0].recipe

    @property
    def seeds(self) -> list[int]:
        """The seeds of the runs."""
        return [run.seed for run in self.runs]

    def along(self, metric: str, split: str, ensemble: bool = False, average: str | None = None) -> Curve:
        """Return a metric of the points, or of the ensembles of alpha and 1 - alpha, that all seeds have."""
        found = [run.pairs(split, average) if ensemble else run.points(split) for run in self.runs]
        grid = [alpha for alpha in found[0] if all(alpha in rows for rows in found)]
        if len(grid) < 2 <= max(map(len, found)):
            raise RunError(f"the runs of {self.label!r} were evaluated at different alphas: evaluate them alike")
        return Curve(np.array(grid), np.array([[value(rows[alpha], metric) for alpha in grid] for rows in found]))

    def logged(self, name: str) -> Curve:
        """Return a column of the logs over the epochs in which every seed has it."""
        columns = [{int(row["epoch"]): float(row[name]) for row in run.log if name in row} for run in self.runs]
        epochs = sorted(set.intersection(*map(set, columns)))  # none of a family that is no run
        return Curve(np.array(epochs, float), np.array([[column[epoch] for epoch in epochs] for column in columns]))


def value(row: Row, metric: str) -> float:
    """Return a metric of a row, or name the nearest one."""
    if metric not in row.metrics:
        raise ArgumentError(f"metric={metric!r}: {nearest(metric, row.metrics)}")
    return row.metrics[metric]


def gather(sources: Source | Iterable[Source], evaluated: bool = True) -> list[Group]:
    """Read families on one data set, and group runs by recipe: single networks, lines, curves, simplexes."""
    runs = _read(sources)
    if not runs:
        raise ArgumentError("no runs were given: expected one run folder or more")
    for run in runs:
        _comparable(runs[0], run, evaluated)
    return grouped(runs)


def grouped(runs: Iterable[Reading]) -> list[Group]:
    """Group families on one data set by recipe: single networks, lines, curves, simplexes, and then all others."""
    found: dict[tuple[Any, ...], list[Reading]] = {}
    others: list[Reading] = []
    for run in runs:
        if run.recipe is None:
            others.append(run)
            continue
        members = found.setdefault(tuple(run.recipe.distinguishing().items()), [])
        twin = next((other for other in members if other.seed == run.seed), None)
        if twin is not None:
            raise RunError(f"{twin.folder} and {run.folder} are the same run: leave one of them out")
        members.append(run)
    pairs = [(recipe, members) for members in found.values() if (recipe := members[0].recipe) is not None]
    pairs.sort(key=lambda pair: place(pair[0]))
    named = zip(labels([recipe for recipe, _ in pairs]), pairs, strict=True)
    names = [run.name for run in others]  # with a number where two have the same
    apart = [f" {names[:at].count(name) + 1}" if names.count(name) > 1 else "" for at, name in enumerate(names)]
    return [
        *(Group(label, sorted(members, key=lambda run: run.seed)) for label, (_, members) in named),
        *(Group(run.name + number, [run]) for run, number in zip(others, apart, strict=True)),
    ]


def _read(sources: Source | Iterable[Source]) -> list[Reading]:
    """Read runs, folders and files once each; a folder in which no run was begun is passed over."""
    several = checks.all_of("runs", sources, (str, os.PathLike, Run, Record), "run folders, or files of evaluations")
    found: dict[Any, Reading] = {}
    for source in several:
        whole = isinstance(source, (Run, Record)) or Path(source).is_file()
        for one in [source] if whole else [folder.resolve() for folder in Run.begun([source])]:
            reading = Reading(one)
            found.setdefault(id(source) if isinstance(source, Record) else reading.folder.resolve(), reading)
    return list(found.values())


def _comparable(first: Reading, other: Reading, evaluated: bool) -> None:
    """Refuse families of different data sets, which only runs know, and evaluations on parts of one that differ."""
    known = [one.recipe.fingerprint or one.recipe.dataset for one in (first, other) if one.recipe is not None]
    if len(set(known)) > 1:
        raise RunError(
            f"{first.folder} is of {known[0]!r} and {other.folder} of {known[1]!r}: expected runs on one data set"
        )
    ours, theirs = (run.record.dataset["splits"].get("test") if evaluated else None for run in (first, other))
    if ours != theirs:
        raise RunError(
            f"{first.folder} was evaluated with {ours} test images and {other.folder} with {theirs}: "
            "evaluate them alike"
        )
