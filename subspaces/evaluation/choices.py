"""What is chosen among the measured: on held-out images, or on the test set and marked.

The best point by accuracy and by NLL, the best pair by accuracy, and the confidence from which the
midpoint's answers have at most half of its error.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from subspaces.evaluation import metrics, selective
from subspaces.evaluation.points import to_place
from subspaces.evaluation.predictions import Predictions
from subspaces.evaluation.record import Choice, Record, Row

SHARE = 0.5  # of the midpoint's error is what the threshold aims at


def choose(record: Record, predictions: Predictions, split: str) -> list[Choice]:
    """Return everything that can be chosen on a split of a record."""
    found = []
    for by in ("accuracy", "nll"):
        found.append(_best(record, split, "point", by, lambda row: row.kind == "point"))
    found.append(_best(record, split, "pair", "accuracy", _is_pair))
    found.append(_threshold(record, predictions, split))
    return [choice for choice in found if choice is not None]


def _is_pair(row: Row) -> bool:
    """Say whether a row is the default ensemble of two different points."""
    return row.average == "probabilities" and len(row.alphas) == 2 and row.alphas[0] != row.alphas[1]


def _choice(split: str, what: Literal["point", "pair", "threshold"], by: str, value: Any, reported: Any) -> Choice:
    return Choice(what, by, split, split == "test", value, reported)


def _best(
    record: Record, split: str, what: Literal["point", "pair"], by: str, wanted: Callable[[Row], bool]
) -> Choice | None:
    """Return the best of several rows, the first among equals; None where there is nothing to choose from."""
    rows = [row for row in record.rows if row.split == split and wanted(row)]
    if len(rows) < 2:
        return None
    sign = -1 if metrics.metric(by).lower_is_better else 1
    best = max(rows, key=lambda row: sign * row.metrics[by])
    same = [row for row in record.rows if (row.kind, row.alphas, row.average) == (best.kind, best.alphas, best.average)]
    value = best.alphas[0] if what == "point" else best.alphas
    return _choice(split, what, by, value, {row.split: dict(row.metrics) for row in same})


def _threshold(record: Record, predictions: Predictions, split: str) -> Choice | None:
    """Return the lowest confidence that halves the midpoint's error; None if it has none, or no confidence does."""
    middle = next(row for row in record.rows if row.role == "midpoint" and row.split == split)
    answers = {
        name: _right_or_wrong(predictions, name, middle) for name in dict.fromkeys(row.split for row in record.rows)
    }
    error = 1 - middle.metrics["accuracy"]
    threshold = selective.threshold_for_risk(*answers[split], SHARE * error) if error else None
    if threshold is None:
        return None
    reported = {name: selective.selected(*answer, threshold) for name, answer in answers.items()}
    return _choice(split, "threshold", "risk", threshold, reported)


def _right_or_wrong(predictions: Predictions, split: str, row: Row) -> tuple[Tensor, Tensor]:
    """Return a point's answers as probabilities of two classes, right and wrong: all that a threshold looks at."""
    answers = predictions.points[to_place(row.alphas[0])][split]
    wrong = (answers.predicted != predictions.labels[split]).long()
    return torch.stack([answers.confidence, torch.zeros_like(answers.confidence)], dim=1), wrong


def renew(record: Record, predictions: Predictions, splits: Iterable[str]) -> list[Choice]:
    """Return the choices on these splits and on those that the record has choices of already."""
    earlier = [choice.chosen_on for choice in record.choices]
    return [choice for split in dict.fromkeys([*earlier, *splits]) for choice in choose(record, predictions, split)]
