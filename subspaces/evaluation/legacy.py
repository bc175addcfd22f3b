"""Shifted data and outliers as lists of their own, in place of rows; to be removed with the last who reads them so."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from subspaces.evaluation import outliers
from subspaces.evaluation.rows import Answered, Description, Row
from subspaces.evaluation.shifted_data import EXTRA


@dataclass(frozen=True)
class Shift:
    """How good points and ensembles are on examples that were changed, or that come from elsewhere."""

    name: str
    severity: int
    group: str
    source: str
    count: int
    rows: list[Row]


@dataclass(frozen=True)
class Outliers:
    """How well points and ensembles tell the test examples from others that are none of their classes."""

    name: str
    count: int
    metrics: list[Description]
    rows: list[Row]
    source: str = "given"


def shifts_of(rows: Iterable[Row]) -> list[Shift]:
    """Return the rows on shifted data, by what was shifted."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        if row.group not in ("", "outliers"):
            found.setdefault((row.data, row.severity, row.group, row.source, row.count), []).append(row)
    return [
        Shift(name, severity, group, source, count, [_as_split(row) for row in some])
        for (name, severity, group, source, count), some in found.items()
    ]


def rows_of(several: Iterable[Shift | Outliers]) -> list[Row]:
    """Return lists as rows."""
    found = []
    for each in several:
        severity, group = (each.severity, each.group) if isinstance(each, Shift) else (0, "outliers")
        about: dict[str, Any] = {"severity": severity, "group": group, "source": each.source, "count": each.count}
        found += [dataclasses.replace(row, data=each.name, **about) for row in each.rows]
    return found


def _as_split(row: Row) -> Row:
    return dataclasses.replace(row, data="test", severity=0, group="", source="")


def outliers_of(rows: Iterable[Row]) -> list[Outliers]:
    """Return the rows about outliers, by their name."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        if row.group == "outliers":
            found.setdefault((row.data, row.count, row.source), []).append(row)
    made = []
    for (name, count, source), some in found.items():
        metrics = [each for each in outliers.METRICS if any(each.name in row.metrics for row in some)]
        made.append(Outliers(name, count, metrics, [_as_split(row) for row in some], source))
    return made


class Change(NamedTuple):
    """A metric on shifted data, and how much that differs from the test examples, as a share of their value."""

    value: float
    relative: float | None


def relative_change(clean: float, shifted: float) -> float | None:
    """Return (b - a) / a; 0 where nothing has changed, and None where what changed was 0."""
    if shifted == clean:
        return 0.0
    return (shifted - clean) / clean if clean else None


def compared(clean: Row | None, metrics: Mapping[str, float]) -> dict[str, Change]:
    """Return metrics on shifted data beside those of the row about the same on the test examples."""
    known = {} if clean is None else clean.metrics
    return {
        name: Change(value, relative_change(known[name], value) if name in known else None)
        for name, value in metrics.items()
    }


def averaged(record: Any) -> list[Shift]:
    """Return the sets over which means are taken: the same ones for all answers, so that these can be compared.

    Of corruptions these are the usual ones, unless there are extra ones alone.
    """
    return answered_by_all(record, [each for each in record.shifts if each.group != EXTRA] or record.shifts)


def answered_by_all(record: Any, shifts: Sequence[Shift]) -> list[Shift]:
    """Return the sets on which every answer was measured that was measured on any of them."""
    measured = [answered for answered in record.answers if any(map(answered.is_of, _rows(shifts)))]
    return [shift for shift in shifts if all(any(map(answered.is_of, shift.rows)) for answered in measured)]


def _rows(shifts: Sequence[Shift]) -> Iterator[Row]:
    return (row for shift in shifts for row in shift.rows)


def mean_changes(record: Any, answered: Answered) -> dict[str, Change]:
    """Return the mean of each metric of an answer over sets of shifted examples, and how much that differs."""
    rows = [row for row in _rows(averaged(record)) if answered.is_of(row)]
    if not rows:
        return {}
    means = {name: fmean(row.metrics[name] for row in rows) for name in rows[0].metrics}
    return compared(record.answer(answered.name), means)
