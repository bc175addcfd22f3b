"""What several evaluations show: metrics along a subspace, over the epochs and over the coverage, and in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation import outliers
from subspaces.evaluation.comparing import SPLIT, Group, check_split, seeds_of
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.group_answers import KEYS, GroupAnswer
from subspaces.evaluation.metrics import METRICS, Metric
from subspaces.evaluation.rows import Row
from subspaces.evaluation.statistics import deviation
from subspaces.evaluation.tasks import Classification, Regression
from subspaces.text import nearest

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """A number along a grid, for each seed."""

    grid: Array  # [points]
    values: Array  # [seeds, points]

    @property
    def mean(self) -> Array:
        return np.asarray(self.values.mean(0))

    @property
    def std(self) -> Array:
        """The standard deviation over seeds (n - 1 in the denominator); 0 for one seed."""
        return deviation(self.values)


def level(answer: GroupAnswer, metric: str) -> Curve:
    """Return a metric of an answer as a curve of one point."""
    if metric not in answer.frame:
        known = [name for name in answer.frame.columns if name not in KEYS]
        raise ArgumentError(f"metric={metric!r}: {nearest(metric, known)}")
    return Curve(np.zeros(1), answer.frame[[metric]].to_numpy(float))


def along(group: Group, metric: str, data: str = SPLIT, average: str | None = "") -> Curve:
    """Return a metric of the points of a line or curve on a split, or of its ensembles of alpha and 1 - alpha.

    `average` says how the members of the ensembles are averaged, None for as usual; "" is for the points.
    """
    if group.rows is None:
        check_split(group, data)
    frame = group.frame
    frame = frame[(frame["data"] == data) & (frame["kind"] == ("point" if average == "" else "ensemble"))]
    frame = frame[frame["alpha"].notna() & (frame["seeds"].map(len) == 1)]
    if average is None and len(frame):
        average = frame["average"].iloc[0]
    frame = frame[frame["average"] == average]
    if not len(frame):
        return Curve(np.zeros(0), np.zeros((len(group.evaluations), 0)))
    if metric not in frame or not frame[metric].notna().any():
        known = [each.name for each in group.evaluations[0].metrics if each.name in frame]
        raise ArgumentError(f"metric={metric!r}: {nearest(metric, known)}")
    runs = {seeds: dict(zip(part["alpha"], part[metric], strict=True)) for seeds, part in frame.groupby("seeds")}
    every = [runs.get(seeds_of(each), {}) for each in group.evaluations]
    grid = sorted(alpha for alpha in every[0] if all(alpha in found for found in every))
    if len(grid) < 2 <= max(map(len, every)):
        raise UserError(f"the runs of {group.label!r} were evaluated at different alphas: evaluate them alike")
    return Curve(np.array(grid), np.array([[found[alpha] for alpha in grid] for found in every]))


def mirrored(pairs: Curve) -> Curve:
    """Return ensembles of alpha and 1 - alpha over the whole range: they are the same at both."""
    above = pairs.grid < 0.5
    grid = np.concatenate([pairs.grid, 1 - pairs.grid[above][::-1]])
    return Curve(grid, np.concatenate([pairs.values, pairs.values[:, above][:, ::-1]], axis=1))


def logged(group: Group, name: str) -> Curve:
    """Return a column of the logs over the epochs in which every run has it."""
    logs = [[] if each.training is None else each.training.log for each in group.evaluations]
    columns = [{int(row["epoch"]): float(row[name]) for row in log if name in row} for log in logs]
    epochs = sorted(set.intersection(*map(set, columns)))
    return Curve(np.array(epochs, float), np.array([[column[epoch] for epoch in epochs] for column in columns]))


def risk(rows: Sequence[Row]) -> Curve:
    """Return the error over the coverage, on the grid of the first row that has one."""
    curves = [row.risk_coverage for row in rows if row.risk_coverage is not None]
    grid = np.array(curves[0].coverage)
    return Curve(grid, np.array([np.interp(grid, each.coverage, each.risk) for each in curves]))


# Metrics in words

LOGGED = (
    Metric("loss", "training loss", "of the batches on the way"),
    Metric("learning_rate", "learning rate", "of an epoch"),
    Metric("train_accuracy", "training accuracy", "on the way, with the labels trained on", False, True),
    Metric("validation_accuracy", "validation accuracy", "of the midpoint", False, True),
    Metric("test_accuracy", "test accuracy", "of the midpoint", False, True),
    Metric("l2", "L2 distance", "between vertices"),
    Metric("cos2", "cos²", "of the angle between vertices"),
)


def described(name: str, groups: Iterable[Group] = ()) -> Metric:
    """Return a metric, or a column of a log, in words: as the evaluations have it, as it is defined, or by its name."""
    told = (each for group in groups for one in group.evaluations for each in one.metrics)
    defined = (*METRICS.values(), *Classification.distances, *Regression.distances, *outliers.METRICS, *LOGGED)
    return next((each for each in (*told, *defined) if each.name == name), Metric(name, name.replace("_", " "), ""))


def shared(evaluations: Sequence[Evaluation]) -> list[Metric]:
    """Return the metrics that were measured of all; what a network does not predict has none."""

    def measured(each: Metric, one: Evaluation) -> bool:
        return each in one.metrics and all(each.name in row.metrics for row in one.rows[:1])

    return [each for each in evaluations[0].metrics if all(measured(each, one) for one in evaluations)]


def usual(groups: Iterable[Group]) -> list[Metric]:
    """Return the two metrics that come first: accuracy and calibration of classifiers, else the first two."""
    known = shared([one for group in groups for one in group.evaluations])
    named = [each for each in known if each.name in ("accuracy", "ece")]
    return named if len(named) == 2 else known[:2]
