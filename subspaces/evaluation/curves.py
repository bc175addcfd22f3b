"""What several evaluations show: metrics along a subspace, over epochs, and on shifted data."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation.comparing import (
    ANSWER,
    KEYS,
    Group,
    GroupAnswer,
    check_split,
    each_answer,
    of_seeds,
    seeds_of,
)
from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.measuring import OUTLIER_METRICS
from subspaces.evaluation.metrics import METRICS, Metric
from subspaces.evaluation.rows import ABOUT, OUTLIERS, SPLIT
from subspaces.evaluation.settings import EXTRA
from subspaces.evaluation.statistics import Spread, deviation, spread
from subspaces.evaluation.tasks import Classification, Regression
from subspaces.text import nearest

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
ORDER = ("noise", "blur", "weather", "digital", EXTRA, "given")  # of groups of shifted data
SET = ["data", "group", "source", "count"]


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
    if metric not in frame:
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


# Metrics in words

LOGGED = (Metric("l2", "L2 distance", "between vertices"), Metric("cos2", "cos²", "of the angle between vertices"))


def described(name: str, groups: Iterable[Group] = ()) -> Metric:
    """Return a metric, or a column of a log, in words: as the evaluations have it, as it is defined, or by its name."""
    told = (each for group in groups for one in group.evaluations for each in one.metrics)
    defined = (*METRICS.values(), *Classification.distances, *Regression.distances, *OUTLIER_METRICS, *LOGGED)
    return next((each for each in (*told, *defined) if each.name == name), Metric(name, name.replace("_", " "), ""))


def shared(evaluations: Sequence[Evaluation]) -> list[Metric]:
    """Return the metrics that were measured of all; what a network does not predict has none."""

    def measured(each: Metric, one: Evaluation) -> bool:
        return each in one.metrics and all(each.name in row.metrics for row in one.rows[:1])

    return [each for each in evaluations[0].metrics if all(measured(each, one) for one in evaluations)]


def usual(groups: Iterable[Group]) -> list[Metric]:
    """Return the two metrics that come first: accuracy and calibration of classifiers, else the first two."""
    known = shared([one for group in groups for one in group.evaluations])
    if not known:
        raise UserError("the evaluations have no metric in common: expected those of one task")
    named = [each for each in known if each.name in ("accuracy", "ece")]
    return named if len(named) == 2 else known[:2]


# Shifted data and outliers


@dataclass(frozen=True)
class Condition:
    """One kind of shifted data: what was done to the examples, by whom, and how severely."""

    name: str
    group: str
    source: str
    count: int
    severities: tuple[int, ...]

    @property
    def label(self) -> str:
        return CORRUPTIONS[self.name].label if self.name in CORRUPTIONS else self.name.replace("_", " ")

    def at(self, severity: int) -> "Condition":
        """Return one severity of it; none where that was not measured."""
        return replace(self, severities=tuple(each for each in self.severities if each == severity))


def shifted_rows(group: Group) -> "pd.DataFrame":
    """Return the rows on shifted data."""
    return group.frame[~group.frame["group"].isin(("", OUTLIERS))]


def outlier_rows(group: Group) -> "pd.DataFrame":
    """Return the rows about outliers."""
    return group.frame[group.frame["group"] == OUTLIERS]


def conditions(groups: Iterable[Group]) -> list[Condition]:
    """Return the shifted data on which every answer of all evaluations was measured, by their groups."""
    every = []
    for group in groups:
        rows = group.answered[~group.answered["group"].isin(("", OUTLIERS))]
        for one in group.evaluations:
            run = of_seeds(rows, seeds_of(one))
            answers = run.groupby([*SET, "severity"], sort=False)["answer"].agg(set)
            every.append([key for key, names in answers.items() if names == set(run["answer"])])
    found: dict[tuple[Any, ...], list[int]] = {}
    for *key, severity in _common(every):
        found.setdefault(tuple(key), []).append(int(severity))
    named = [Condition(*key, severities=tuple(sorted(each))) for key, each in found.items()]  # type: ignore[misc]
    return sorted(named, key=lambda each: ORDER.index(each.group) if each.group in ORDER else len(ORDER))


def outlier_sets(groups: Iterable[Group]) -> list[tuple[Any, ...]]:
    """Return name, count and source of the outliers against which all evaluations were measured."""
    runs = [of_seeds(outlier_rows(group), seeds_of(one)) for group in groups for one in group.evaluations]
    return _common([list(dict.fromkeys(zip(run["data"], run["count"], run["source"], strict=True))) for run in runs])


def _common(every: Sequence[Sequence[Any]]) -> list[Any]:
    """Return what is in all of some lists, in the order of the first."""
    return [one for one in every[0] if all(one in each for each in every)] if every else []


def averaged_over(found: Sequence[Condition]) -> list[Condition]:
    """Return what a mean is over: all but the extra corruptions, unless there are no others."""
    return [each for each in found if each.group != EXTRA] or list(found)


def severities(found: Iterable[Condition]) -> str:
    """Return the severities in words; nothing where there are none."""
    known = sorted({severity for each in found for severity in each.severities if severity})
    whole = known == list(range(known[0], known[-1] + 1)) if len(known) > 2 else False
    listed = f"{known[0]}–{known[-1]}" if whole else ", ".join(map(str, known))
    return f"{'severity' if len(known) == 1 else 'severities'} {listed}" if known else ""


def on(group: Group, wanted: Sequence[Condition]) -> Group:
    """Return a group as it was measured on shifted data, on average over them, in place of the test examples."""
    import pandas as pd

    names = [*SET, "severity"]
    sets = [(one.name, one.group, one.source, one.count, severity) for one in wanted for severity in one.severities]
    frame = shifted_rows(group).merge(pd.DataFrame(sets, columns=names), on=names)
    grouped, metrics = frame.groupby([*ANSWER, "kind"], sort=False), frame.columns.drop(["method", "seeds", *ABOUT])
    means = grouped[list(metrics)].sum(min_count=len(sets)) / len(sets)  # NaN where one is
    about = grouped[["method", "answer", "alpha", "count"]].first().assign(data=SPLIT, severity=0, group="", source="")
    return replace(group, rows=about.join(means)[grouped.size() == len(sets)].reset_index(), ensembles=[])


def against(group: Group, outliers: tuple[Any, ...]) -> Group:
    """Return a group as it was measured against outliers of that name, count and source."""
    (name, count, source), rows = outliers, outlier_rows(group)
    inside = (rows["data"] == name) & (rows["count"] == count) & (rows["source"] == source)
    return replace(group, rows=rows[inside].assign(data=SPLIT), ensembles=[])


def outlier_metrics(groups: Sequence[Group]) -> list[Metric]:
    """Return the metrics that say how well outliers are told apart."""
    frames = [outlier_rows(group).drop(columns=["method", "seeds", *ABOUT]) for group in groups]
    names = dict.fromkeys(name for frame in frames for name in frame.dropna(axis="columns", how="all"))
    return [described(str(name)) for name in names]


def relative(before: float, after: float) -> float:
    """Return (b - a) / a; 0 where nothing has changed, and NaN where what changed was 0."""
    if before == after:
        return 0.0
    return (after - before) / before if before else math.nan


@dataclass(frozen=True)
class Changed:
    """An answer on the test examples, and on shifted ones."""

    before: GroupAnswer
    after: GroupAnswer

    def relative(self, metric: str) -> dict[tuple[int, ...], float]:
        """Return the relative change of a metric for each seed."""
        after = self.after.by_seeds(metric)
        return {seeds: relative(value, after[seeds]) for seeds, value in self.before.by_seeds(metric).items()}

    def spread(self, metric: str) -> Spread:
        return spread(list(self.relative(metric).values()))


def changed(group: Group, wanted: Sequence[Condition]) -> list[Changed]:
    """Return the answers of a group that were measured with the same seeds on both, its first choice first."""
    after = {each.words: each for each in each_answer(on(group, wanted))} if any(w.severities for w in wanted) else {}
    pairs = [Changed(each, after[each.words]) for each in each_answer(group) if each.words in after]
    return [each for each in pairs if set(each.before.frame["seeds"]) == set(each.after.frame["seeds"])]


def best_along(group: Group, wanted: Sequence[Condition], metric: Metric) -> dict[tuple[int, ...], float]:
    """Return the relative change at the best point of a line or curve, in the mean over shifted data.

    For each kind of shifted data it is the point with the best relative change, chosen on these very examples, as in
    Figure 20 of the paper.
    """
    clean, best = along(group, metric.name), []
    for each in wanted:
        curve = along(on(group, [each]), metric.name)
        before = clean.values[:, np.isin(clean.grid, curve.grid)]
        after = curve.values[:, np.isin(curve.grid, clean.grid)]
        changes = np.vectorize(relative, otypes=[float])(before, after)
        best.append((np.fmin if metric.lower_is_better else np.fmax).reduce(changes, axis=1))
    return {seeds_of(one): fmean(each) for one, each in zip(group.evaluations, np.transpose(best), strict=True)}
