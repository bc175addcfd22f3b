"""Shifted data and outliers of several evaluations: what all were measured on, and how far their numbers change."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from subspaces.evaluation.comparing import ANSWER, SPLIT, Group, of_seeds, seeds_of
from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.evaluation.curves import along, described
from subspaces.evaluation.group_answers import GroupAnswer, each_answer
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.rows import ABOUT, OUTLIERS
from subspaces.evaluation.statistics import Spread, spread

if TYPE_CHECKING:
    import pandas as pd

EXTRA = "extra"  # the group of corruptions that are kept for validation
ORDER = ("noise", "blur", "weather", "digital", EXTRA, "given")
SET = ["data", "group", "source", "count"]


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
