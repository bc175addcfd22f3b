"""What is chosen among the measured: on held-out examples, or on the test set and marked.

The best point by each metric that the task shows, the best pair by the first of them, for classifiers the confidence
from which the midpoint's predictions have at most half of its error, and the vertices of the greedy soup.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from subspaces.evaluation import selective
from subspaces.evaluation.evaluation import choice
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.rows import Choice, Row

SHARE = 0.5  # of the midpoint's error is what the threshold aims at


def choose(rows: Sequence[Row], split: str, by: Sequence[Metric], middle: Mapping[str, Tensor]) -> list[Choice]:
    """Return everything that can be chosen on a split by these metrics.

    `middle` are on each split the confidences of the midpoint, and whether its predictions are right, [n, 2].
    """
    there = [row for row in rows if row.data == split and not row.group]
    points, pairs = [row for row in there if row.kind == "point"], [row for row in there if _is_pair(row)]
    found = [choice("point", metric, rows, points, split) for metric in by]
    found.append(choice("pair", by[0], rows, pairs, split))
    midpoint = next((row for row in there if row.role == "midpoint"), None)
    if midpoint is not None and split in middle:
        found.append(_threshold(1 - midpoint.metrics["accuracy"], middle, split))
    return [each for each in found if each is not None]


def _is_pair(row: Row) -> bool:
    """Say whether a row is the usual ensemble of two different points."""
    two = len(row.alphas) == 2 and row.alphas[0] != row.alphas[1]
    return row.average not in (None, "logits") and two


def _threshold(error: float, middle: Mapping[str, Tensor], split: str) -> Choice | None:
    """Return the lowest confidence that halves the midpoint's error; None if it has none, or no confidence does."""
    threshold = selective.threshold(middle[split], SHARE * error) if error else None
    if threshold is None:
        return None
    reported = {name: selective.answered(each, threshold) for name, each in middle.items()}
    return Choice("threshold", "risk", split, split == "test", threshold, reported)


Merit = Callable[[tuple[int, ...]], float]
"""Of the uniform average of some vertices: the higher, the better."""


def greedy(vertices: Sequence[int], merit: Merit) -> tuple[int, ...]:
    """Return the vertices of the greedy soup (Wortsman et al., 2022), the best on held-out examples.

    From the best vertex on, each is kept with which the average does not get worse. A vertex whose merit is NaN is not
    added to others, and neither is one with which that of the average is NaN.
    """
    alone = {vertex: merit((vertex,)) for vertex in vertices}
    ranked = sorted((vertex for vertex in alone if alone[vertex] > -math.inf), key=lambda vertex: -alone[vertex])
    first, *others = ranked or list(alone)[:1]  # equals stay in their order
    kept: tuple[int, ...] = (first,)
    reached = alone[first]
    for vertex in others:
        tried = tuple(sorted((*kept, vertex)))
        found = merit(tried)
        if found >= reached:
            kept, reached = tried, found
    return kept
