"""What shifted data changes: rows of a record on it, and how far they are from those on the test examples."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from subspaces.evaluation.record import Answered, Record, Row, Shift
from subspaces.text import nearest

EXTRA = "extra"  # the group of corruptions that are kept for validation


class Change(NamedTuple):
    """A metric on shifted data, and how much that differs from the test examples, as a share of their value."""

    value: float
    relative: float | None


def relative_change(clean: float, shifted: float) -> float | None:
    """Return (b - a) / a; 0 where nothing has changed, and None where what changed was 0."""
    if shifted == clean:
        return 0.0
    return (shifted - clean) / clean if clean else None


def find_shift(record: Record, name: str, severity: int | None = None) -> Shift:
    """Return what was measured on a set of shifted examples; of one severity alone it need not be named."""
    known = [each for each in record.shifts if each.name == name]
    if not known:
        names = list(dict.fromkeys(each.name for each in record.shifts))
        hint = nearest(name, names) if names else "no shifted data was measured; evaluate with corruptions="
        raise KeyError(f"{name!r} was not measured: {hint}")
    found = [each for each in known if severity in (None, each.severity)]
    if len(found) != 1:
        severities = ", ".join(str(each.severity) for each in known)
        raise KeyError(f"severity {severity} of {name!r}: expected one of {severities}")
    return found[0]


def shifted(record: Record, answer: str, name: str, severity: int | None = None) -> Row:
    """Return the row of an answer on shifted data."""
    return _of_answer(record, answer, find_shift(record, name, severity).rows, name)


def compared(clean: Row | None, metrics: Mapping[str, float]) -> dict[str, Change]:
    """Return metrics on shifted data beside those of the row about the same on the test examples."""
    known = {} if clean is None else clean.metrics
    return {
        name: Change(value, relative_change(known[name], value) if name in known else None)
        for name, value in metrics.items()
    }


def averaged(record: Record) -> list[Shift]:
    """Return the sets over which means are taken: the same ones for all answers, so that these can be compared.

    Of corruptions these are the usual ones, unless there are extra ones alone.
    """
    return answered_by_all(record, [each for each in record.shifts if each.group != EXTRA] or record.shifts)


def answered_by_all(record: Record, shifts: Sequence[Shift]) -> list[Shift]:
    """Return the sets on which every answer was measured that was measured on any of them."""
    measured = [answered for answered in record.answers if any(map(answered.is_of, _rows(shifts)))]
    return [shift for shift in shifts if all(any(map(answered.is_of, shift.rows)) for answered in measured)]


def _rows(shifts: Sequence[Shift]) -> Iterator[Row]:
    return (row for shift in shifts for row in shift.rows)


def mean_changes(record: Record, answered: Answered) -> dict[str, Change]:
    """Return the mean of each metric of an answer over sets of shifted examples, and how much that differs."""
    rows = [row for row in _rows(averaged(record)) if answered.is_of(row)]
    if not rows:
        return {}
    means = {name: fmean(row.metrics[name] for row in rows) for name in rows[0].metrics}
    return compared(record.answer(answered.name), means)


def against(record: Record, answer: str, name: str) -> Row:
    """Return the row of an answer against outliers."""
    outliers = next((each for each in record.outliers if each.name == name), None)
    if outliers is None:
        names = [each.name for each in record.outliers]
        hint = nearest(name, names) if names else "no outliers were measured; evaluate with outliers="
        raise KeyError(f"{name!r} was not measured: {hint}")
    return _of_answer(record, answer, outliers.rows, name)


def _of_answer(record: Record, answer: str, rows: Sequence[Row], name: str) -> Row:
    known = {each.name: each for each in record.answers}
    found = next((row for row in rows if answer in known and known[answer].is_of(row)), None)
    if found is None:
        raise KeyError(f"{answer!r} was not measured on {name!r}: {nearest(answer, known)}")
    return found
