"""All that was measured of one family: one table, and the curves, planes and examples beside it; saved as JSON."""

import dataclasses
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from subspaces.core import checks
from subspaces.core.storage import FileError, damaged
from subspaces.errors import ArgumentError
from subspaces.evaluation import files
from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.evaluation.metrics import SAVED, Metric
from subspaces.evaluation.rows import (
    ABOUT,
    OUTLIERS,
    SPLIT,
    Alpha,
    Answered,
    Choice,
    Examples,
    Plane,
    Row,
    Training,
    hashable,
)
from subspaces.text import nearest, one_of

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 3
FILE = "evaluation.json"
REMEDY = "remove it and evaluate anew"


@dataclass
class Evaluation:
    """All that was measured of one family."""

    name: str
    shape: dict[str, Any]  # "kind" of alpha (single, interval, simplex), "vertices", what "members" are called, "type"
    task: str
    metrics: list[Metric]
    answers: list[Answered]
    environment: dict[str, Any]
    dataset: dict[str, Any]  # "name", "classes", and of how many examples the "splits" are
    statistics: dict[str, Any]
    recipe: dict[str, Any] | None = None
    training: Training | None = None
    rows: list[Row] = field(default_factory=list)
    planes: list[Plane] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    examples: Examples | None = None
    command: str = ""  # the command lines that made it
    schema: int = SCHEMA

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the evaluation of a file that `save` wrote, or of a run folder."""
        path = checks.folder("path", path)
        file = path / FILE if path.is_dir() else path
        if not file.exists() and not file.is_symlink():
            raise FileError(f"{path} has no {FILE}: run `subspaces evaluate {path}` first")
        values = files.read_json(file, REMEDY)
        if values.get("schema") != SCHEMA:
            raise FileError(f"{file} has schema {values.get('schema')}, this version reads {SCHEMA}: {REMEDY}")
        try:
            found: Self = files.build(cls, values)
        except ArgumentError as error:
            raise damaged(file, error, REMEDY) from None
        return found

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to a JSON file, or into a run folder; return the path that was given."""
        path = checks.folder("path", path)
        content = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        content["metrics"] = [{name: getattr(each, name) for name in SAVED} for each in self.metrics]
        files.write_json(path / FILE if path.is_dir() else path, content)
        return path

    @property
    def frame(self) -> "pd.DataFrame":
        """One row per (answer or point, data, severity), and a column per metric, as a DataFrame.

        ========== =====================================================================================================
        answer     the name of the answer, such as "midpoint" or "pair"; "" of a point that is no answer
        kind       "point", or "ensemble" of several
        role       "along", "midpoint", "vertex", "edge", "grid", "random", …
        alpha      of a line or curve the point, or the smaller one of a pair; else NaN
        alphas     all points, each a number or a tuple of barycentric coordinates
        average    how the members of an ensemble are averaged: "probabilities", "logits", …; "" of a point
        networks   how many networks answer together
        data       "test", "validation", the name of a corruption or loader, or of the outliers
        severity   of a corruption, from 1; else 0
        group      "" of a split; of shifted data "noise", "blur", "weather", "digital", "extra" or "given"; "outliers"
        source     of shifted data and outliers: "made", "given", "data", or the name of a folder
        count      examples
        ========== =====================================================================================================

        Metrics after temperature scaling are `scaled_NAME` and `temperature`; how differently the members of an
        ensemble predict is in columns such as `tv` and `disagreement`. Reliability is in `rows`.
        """
        import pandas as pd

        entries = [self._entry(row) for row in self.rows]
        frame = pd.DataFrame(entries, columns=None if entries else ABOUT)
        return frame[[*ABOUT, *frame.columns.difference(ABOUT, sort=False)]]

    def _entry(self, row: Row) -> dict[str, Any]:
        numbers = [alpha for alpha in row.alphas if not isinstance(alpha, list)]
        alone = self.shape["kind"] == "interval" and row.role in ("along", "midpoint")
        scaled = row.scaled or {}
        return {
            "answer": next((each.name for each in self.answers if each.is_of(row)), ""),
            "alpha": min(numbers) if alone and numbers else math.nan,
            **{name: getattr(row, name) for name in ABOUT if name not in ("answer", "alpha")},
            "alphas": hashable(row.alphas),
            "average": row.average or "",
            **row.metrics,
            **{name if name == "temperature" else f"scaled_{name}": value for name, value in scaled.items()},
            **(row.diversity or {}),
        }

    @property
    def family(self) -> str | None:
        """The checksum of the family that was measured."""
        found = self.environment.get("family")
        return None if found is None else str(found)

    @property
    def splits(self) -> list[str]:
        """The names of the splits that were measured."""
        return list(dict.fromkeys(row.data for row in self.rows if not row.group))

    def metric(self, name: str) -> Metric:
        """Return a metric in words, or name the nearest one."""
        known = {each.name: each for each in self.metrics}
        return known[one_of("metric", name, known)]

    def answer(self, name: str, data: str = SPLIT, severity: int | None = None) -> Row | None:
        """Return the row of an answer on a split, or on other data; None if it was not measured."""
        wanted = [each for each in self.answers if each.name == name]
        rows = (row for row in self.rows if row.data == data and severity in (None, row.severity))
        return next((row for row in rows if any(each.is_of(row) for each in wanted)), None)

    def row(self, answer: str, data: str = SPLIT, severity: int | None = None) -> Row:
        """Return the row of an answer on a split, on shifted data, or against outliers.

        Example:
            >>> shifted = ss.evaluate(family, test=image_loader, corruptions=["fog"], outliers={"noise": noise_loader})
            >>> shifted.row("midpoint", "fog", 3).accuracy
            >>> shifted.row("pair", "noise").auroc_entropy
        """
        known = {row.data: sorted({one.severity for one in self.rows if one.data == row.data}) for row in self.rows}
        if data not in known:
            raise KeyError(f"{checks.shown(data)} was not measured: {nearest(data, known)}")
        if severity not in known[data] and (severity is not None or len(known[data]) > 1):
            expected = ", ".join(map(str, known[data]))
            raise KeyError(f"severity {severity} of {data!r}: expected one of {expected}")
        if (found := self.answer(answer, data, severity)) is None:
            names = [each.name for each in self.answers]
            raise KeyError(f"{checks.shown(answer)} was not measured on {data!r}: {nearest(answer, names)}")
        return found

    def __getitem__(self, answer: str) -> Row:
        """Return the row of an answer on the test examples: `evaluation["midpoint"].accuracy`."""
        return self.row(answer, SPLIT, 0)

    def best(self, *, by: str = "nll", on: str = "validation") -> Alpha:
        """Return the best single point by a metric on a split.

        The choice is added to `choices`, with what it gives on every split; one that is made on the test examples is
        marked wherever it is shown, because it flatters.
        """
        if not isinstance(on, str) or on not in self.splits:
            raise ArgumentError(
                f"on={checks.shown(on)}: {nearest(on, self.splits)}; pass validation= to choose on held-out examples"
            )
        points = [row for row in self.rows if row.data == on and row.kind == "point"]
        found = choice("point", self.metric(by), self.rows, points, on)
        if found is None and len(points) > 1:
            raise ArgumentError(f"{by} is NaN at every point of {self.name} on the {on} examples: check both for NaN")
        if found is None:
            raise ArgumentError(f"{self.name} has one point: there is nothing to choose from")
        self.choices = [each for each in self.choices if (each.what, each.by, each.chosen_on) != ("point", by, on)]
        self.choices.append(found)
        alpha: Alpha = found.value
        return alpha


def choice(what: Any, metric: Metric, rows: Iterable[Row], among: Iterable[Row], on: str) -> Choice | None:
    """Return the best of some rows, the first among equals, and its metrics on all splits; None with nothing to choose.

    A row whose metric is NaN is never chosen.
    """
    several = list(among)
    known = [row for row in several if not math.isnan(row.metrics[metric.name])]
    if len(several) < 2 or not known:
        return None
    chosen = max(known, key=lambda row: metric.merit(row.metrics[metric.name]))
    about = (chosen.kind, chosen.alphas, chosen.average)
    same = [row for row in rows if not row.group and (row.kind, row.alphas, row.average) == about]
    value = chosen.alphas[0] if what == "point" else chosen.alphas
    return Choice(what, metric.name, on, on == SPLIT, value, {row.data: dict(row.metrics) for row in same})


def choices_of(rows: Sequence[Row], by: Sequence[Metric]) -> list[Choice]:
    """Return the best points on held-out examples by some metrics, and the best pair by the first of them."""
    on = "validation"
    there = [row for row in rows if row.data == on and not row.group]
    points = [row for row in there if row.kind == "point"]
    pairs = [row for row in there if row.average not in (None, "logits") and len(row.alphas) == 2]
    pairs = [row for row in pairs if row.alphas[0] != row.alphas[1]]
    found = [choice("point", metric, rows, points, on) for metric in by] + [choice("pair", by[0], rows, pairs, on)]
    return [each for each in found if each is not None]


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Return rows by data, points before ensembles, and along the subspace; a simplex begins with its first vertex."""
    names, roles = list(CORRUPTIONS), ["along", "midpoint", "vertex", "edge", "grid", "random"]

    def order(row: Row) -> tuple[Any, ...]:
        place = names.index(row.data) if row.group not in ("", OUTLIERS) and row.data in names else len(names)
        data = (bool(row.group) + (row.group == OUTLIERS), place, row.data, row.severity)
        role = (max(1, roles.index(row.role)), "") if row.role in roles else (len(roles), row.role)
        places = [[-part for part in alpha] if isinstance(alpha, list) else [alpha] for alpha in row.alphas]
        return (data, row.kind != "point", role, places, row.networks, row.average == "logits")

    return sorted(rows, key=order)
