"""What is chosen among the measured: on held-out examples, or on the test set and marked.

The best point by each metric that the task shows, the best pair by the first of them, and for classifiers the
confidence from which the midpoint's answers have at most half of its error.
"""

import math
from collections.abc import Callable, Iterable
from typing import Literal

from subspaces.evaluation import selective
from subspaces.evaluation.examples import Predictions
from subspaces.evaluation.points import to_place
from subspaces.evaluation.record import Choice, Record, Row

SHARE = 0.5  # of the midpoint's error is what the threshold aims at


def choose(record: Record, predictions: Predictions, split: str, by: Iterable[str]) -> list[Choice]:
    """Return everything that can be chosen on a split of a record by these metrics."""
    names = list(by)
    found = [best(record, split, "point", name, lambda row: row.kind == "point") for name in names]
    found.append(best(record, split, "pair", names[0], _is_pair))
    found.append(_threshold(record, predictions, split))
    return [choice for choice in found if choice is not None]


def _is_pair(row: Row) -> bool:
    """Say whether a row is the usual ensemble of two different points."""
    two = len(row.alphas) == 2 and row.alphas[0] != row.alphas[1]
    return row.average not in (None, "logits") and two


def best(
    record: Record, split: str, what: Literal["point", "pair"], by: str, wanted: Callable[[Row], bool]
) -> Choice | None:
    """Return the best of several rows, the first among equals; None where there is nothing to choose from.

    A row whose metric is NaN is never chosen.
    """
    rows = [row for row in record.rows if row.split == split and wanted(row)]
    known = [row for row in rows if not math.isnan(row.metrics[by])]
    if len(rows) < 2 or not known:
        return None
    metric = record.metric(by)
    chosen = max(known, key=lambda row: metric.merit(row.metrics[by]))
    about = (chosen.kind, chosen.alphas, chosen.average)
    same = [row for row in record.rows if (row.kind, row.alphas, row.average) == about]
    value = chosen.alphas[0] if what == "point" else chosen.alphas
    return Choice(what, by, split, split == "test", value, {row.split: dict(row.metrics) for row in same})


def _threshold(record: Record, predictions: Predictions, split: str) -> Choice | None:
    """Return the lowest confidence that halves the midpoint's error; None if it has none, or no confidence does."""
    middle = next((row for row in record.rows if row.role == "midpoint" and row.split == split), None)
    place = None if middle is None else to_place(middle.alphas[0])
    if middle is None or place not in predictions.points:
        return None
    splits = list(dict.fromkeys(row.split for row in record.rows))
    answers = {name: predictions.each(place, name) for name in splits}
    error = 1 - middle.metrics["accuracy"]
    threshold = selective.threshold(answers[split], SHARE * error) if error else None
    if threshold is None:
        return None
    reported = {name: selective.answered(answer, threshold) for name, answer in answers.items()}
    return Choice("threshold", "risk", split, split == "test", threshold, reported)


def renew(record: Record, predictions: Predictions, splits: Iterable[str], by: Iterable[str]) -> list[Choice]:
    """Return the choices on these splits and on those that the record has choices of already."""
    earlier = [choice.chosen_on for choice in record.choices]
    names = list(by)
    wanted = dict.fromkeys([*earlier, *splits])
    return [choice for split in wanted for choice in choose(record, predictions, split, names)]
