"""What figures and the page show, as data: lines over alpha and the epochs; shifted data."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation import curves
from subspaces.evaluation.comparing import Group, GroupAnswer, check_split, first, of_seeds, place
from subspaces.evaluation.curves import Condition, Curve, shifted_rows
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.rows import SPLIT
from subspaces.text import nearest

LOGGED = ("l2", "cos2")
"""Columns of the log about the distances between vertices."""


@dataclass(frozen=True)
class Series:
    """A line with its values as they are shown.

    `kind` is "points" at alpha, "pairs" of alpha and 1 - alpha, "level" of an answer that has no alpha, and "".
    """

    label: str
    group: int  # the number of the group, which says how it looks
    curve: Curve
    kind: str = ""
    answer: GroupAnswer | None = None


def along(
    groups: Sequence[Group], metric: Metric, split: str, levels: Sequence[GroupAnswer] | None = None
) -> list[Series]:
    """Return the points and ensembles of lines and curves, and answers of the other groups as levels.

    The levels are by default the own answer of each.
    """
    found = []
    for index, group in enumerate(groups):
        if not group.interval:
            for one in [first(group, split)] if levels is None else [one for one in levels if one.group is group]:
                level = _scaled(curves.level(one, metric.name), metric)
                found.append(Series(one.label, index, level, "level", one))
            continue
        points = curves.along(group, metric.name, split)
        found.append(Series(f"{group.label}: at α", index, _scaled(points, metric), "points"))
        pairs = curves.along(group, metric.name, split, average=None)
        if len(pairs.grid):
            mirrored = _scaled(curves.mirrored(pairs), metric)
            found.append(Series(f"{group.label}: α and 1 − α together", index, mirrored, "pairs"))
    return found


def logged(groups: Sequence[Group], column: Metric) -> list[Series]:
    """Return a column of the logs over the epochs, of groups with several vertices."""
    found = (
        (index, curves.logged(group, column.name)) for index, group in enumerate(groups) if not group.trained_alone
    )
    return [Series(groups[at].label, at, _scaled(curve, column)) for at, curve in found if len(curve.grid)]


def _scaled(curve: Curve, metric: Metric) -> Curve:
    return Curve(np.asarray(curve.grid), metric.scale * curve.values)


def shifted(groups: Sequence[Group], metric: str, split: str) -> list[Condition]:
    """Return the shifted data that all groups were measured on by a metric, or say why there is none to show."""
    if split != SPLIT:
        raise ArgumentError(f"split={split!r}: shifted data stand in place of the {SPLIT} split, leave it out")
    for group in groups:
        rows = shifted_rows(group)
        rows = rows[rows["kind"] == "point"] if group.interval else rows  # of a line or curve the points are shown
        for one, seed in zip(group.evaluations, group.seeds, strict=True):
            if not len(of_seeds(rows, (seed,))):
                raise UserError(f"{place(one)} was not measured on shifted data: evaluate it with corruptions")
        check_split(group, SPLIT)
    found = curves.conditions(groups)
    if not found:
        raise UserError("the runs were measured on different shifted data: evaluate them alike")
    every = [shifted_rows(group).dropna(axis="columns", how="all") for group in groups]
    known = [each.name for each in groups[0].evaluations[0].metrics if all(each.name in rows for rows in every)]
    if metric not in known:
        raise ArgumentError(f"metric={metric!r} was not measured on shifted data: {nearest(metric, known)}")
    return found
