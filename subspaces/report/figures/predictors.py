"""What predicts in a run: its midpoint, and the ensemble that stands for it."""

from collections.abc import Sequence
from dataclasses import dataclass

from subspaces.evaluation.record import Row
from subspaces.report.reading import Group


@dataclass(frozen=True)
class Predictor:
    """The rows of one kind of prediction of a group, one for each seed."""

    label: str
    group: Group
    ensemble: bool
    rows: list[Row]


def predictors(groups: Sequence[Group], split: str) -> list[Predictor]:
    """Return the single networks, and the midpoint and the ensemble of every subspace."""
    found = []
    for group in groups:
        centers = [row for run in group.runs if (row := run.center(split)) is not None]
        ensembles = [row for run in group.runs if (row := run.ensemble(split)) is not None]
        word = "" if group.runs[0].single else ": midpoint"
        if centers:
            found.append(Predictor(f"{group.label}{word}", group, False, centers))
        if ensembles:
            found.append(Predictor(f"{group.label}: {_members(ensembles[0])}", group, True, ensembles))
    return found


def _members(row: Row) -> str:
    """Return in words of what an ensemble is."""
    if row.role == "vertex":
        return "ensemble of vertices"
    if row.role == "random":
        return f"ensemble of {len(row.alphas)} random points"
    return f"ensemble of {' and '.join(f'{alpha:g}' for alpha in row.alphas)}"
