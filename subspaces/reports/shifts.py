"""What was measured on shifted data and against outliers, read as if it were a split, and how far numbers change."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from subspaces.errors import ArgumentError
from subspaces.evaluation.changes import EXTRA, answered_by_all, relative_change
from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.evaluation.record import About, Description, Outliers, Record, Row, Shift
from subspaces.evaluation.statistics import Spread, spread
from subspaces.experiments.training.runs import RunError
from subspaces.reports.answers import Answer, Seeds, own
from subspaces.reports.reading import Group, Reading, value
from subspaces.text import nearest

ORDER = ("noise", "blur", "weather", "digital", EXTRA, "given")
SPLIT = "test"  # whose examples are shifted


@dataclass(frozen=True)
class Condition:
    """One kind of shifted data: what was done to the examples, by whom, and how strongly."""

    name: str
    group: str
    source: str
    count: int
    severities: tuple[int, ...]

    @property
    def label(self) -> str:
        """What it is called."""
        return CORRUPTIONS[self.name].label if self.name in CORRUPTIONS else self.name.replace("_", " ")


def conditions(records: Sequence[Record]) -> list[Condition]:
    """Return the shifted data that all of these were measured on, by their groups."""
    whole = [answered_by_all(record, record.shifts) for record in records]
    every = [{(one.name, one.group, one.source, one.count, one.severity) for one in shifts} for shifts in whole]
    found: dict[tuple[str, str, str, int], list[int]] = {}
    for one in records[0].shifts:
        key = (one.name, one.group, one.source, one.count)
        if all((*key, one.severity) in each for each in every):
            found.setdefault(key, []).append(one.severity)
    named = [Condition(*key, tuple(sorted(severities))) for key, severities in found.items()]
    return sorted(named, key=lambda each: ORDER.index(each.group) if each.group in ORDER else len(ORDER))


def needed(groups: Sequence[Group], metric: str, split: str) -> list[Condition]:
    """Return the shifted data that all groups were measured on by a metric, or say why there is none to show."""
    if split != SPLIT:
        raise ArgumentError(f"split={split!r}: shifted data stand in place of the {SPLIT} split, leave it out")
    runs = [run for group in groups for run in group.runs]
    found = conditions([run.record for run in runs])
    for run in runs:
        if not run.record.shifts or not all(_measured(run, each) for each in found):
            hint = "pass corruptions= to evaluate"
            if run.run is not None:
                hint = f"run `subspaces evaluate {run.folder} --corruptions all`"
            raise RunError(f"{run.folder} was not measured on shifted data: {hint}")
        run.rows(split)
    if not found:
        raise RunError("the runs were measured on different shifted data: evaluate them alike")
    known = [row.metrics for run in runs for one in run.record.shifts for row in one.rows]
    if not all(metric in each for each in known):
        measured = [name for name in known[0] if all(name in each for each in known)]
        raise ArgumentError(f"metric={metric!r} was not measured on shifted data: {nearest(metric, measured)}")
    return found


def _measured(run: Reading, condition: Condition) -> bool:
    """Say whether there is something to show of a run: of a line or curve, its points."""
    return any(row.kind == "point" or not run.interval for row in rows_on(run.record, [condition]))


def strengths(found: Iterable[Condition]) -> str:
    """Return the severities in words; nothing where there are none."""
    known = sorted({severity for each in found for severity in each.severities if severity})
    whole = known == list(range(known[0], known[-1] + 1)) if len(known) > 2 else False
    listed = f"{known[0]}–{known[-1]}" if whole else ", ".join(map(str, known))
    return f"{'severity' if len(known) == 1 else 'severities'} {listed}" if known else ""


def averaged_over(found: Sequence[Condition]) -> list[Condition]:
    """Return what a mean is over: all but the extra corruptions, unless there are no others."""
    return [each for each in found if each.group != EXTRA] or list(found)


def rows_on(record: Record, wanted: Iterable[Condition]) -> list[Row]:
    """Return the rows on shifted data as if that were the split: on average over severities and conditions."""
    return _mean([one.rows for each in wanted for one in record.shifts if _is_of(one, each)])


def _is_of(one: Shift, condition: Condition) -> bool:
    same = all(getattr(one, name) == getattr(condition, name) for name in ("name", "group", "source", "count"))
    return same and one.severity in condition.severities


def _mean(several: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the mean of the metrics of rows about the same, where all have one."""
    keyed = [{_about(row): row for row in rows} for rows in several]
    found = []
    for key, first in keyed[0].items() if keyed else ():
        same = [rows[key] for rows in keyed if key in rows]
        if len(same) == len(keyed):
            metrics = {name: float(np.mean([row.metrics[name] for row in same])) for name in first.metrics}
            found.append(dataclasses.replace(first, data=SPLIT, metrics=metrics, scaled=None))
    return found


def _about(row: Row) -> str:
    return str(About(row.kind, row.role, row.alphas, row.average, row.networks))


def on(group: Group, wanted: Sequence[Condition]) -> Group:
    """Return a group as it was measured on shifted data, which stand in place of the test examples."""
    return _seen(group, [rows_on(run.record, wanted) for run in group.runs])


def clean(group: Group) -> Group:
    """Return a group as it was measured on the examples themselves, without what was chosen."""
    return _seen(group, [run.record.rows for run in group.runs])


def against(group: Group, outliers: Outliers) -> Group:
    """Return a group as it was measured against outliers of that name."""
    named = [next(one for one in run.record.outliers if same(one, outliers)) for run in group.runs]
    return _seen(group, [[dataclasses.replace(row, data=SPLIT) for row in one.rows] for one in named])


def same(one: Outliers, other: Outliers) -> bool:
    """Say whether two are of the same outliers."""
    return (one.name, one.count, one.source) == (other.name, other.count, other.source)


def _seen(group: Group, rows: Sequence[list[Row]]) -> Group:
    records = [
        dataclasses.replace(run.record, rows=each, choices=[]) for run, each in zip(group.runs, rows, strict=True)
    ]
    views = [Reading(run.run or record, record) for run, record in zip(group.runs, records, strict=True)]
    return Group(group.label, views)


def _relative(before: float, after: float) -> float:
    """Return the relative change; NaN of what was 0."""
    found = relative_change(before, after)
    return math.nan if found is None else found


@dataclass(frozen=True)
class Changed:
    """An answer on the test examples, and on shifted ones."""

    before: Answer
    after: Answer

    def relative(self, metric: str) -> dict[Seeds, float]:
        """Return the relative change of a metric for each seed."""
        after = self.after.by_seeds
        return {
            seeds: _relative(metrics[metric], after[seeds][metric]) for seeds, metrics in self.before.by_seeds.items()
        }

    def spread(self, metric: str) -> Spread:
        """Return the relative change over the seeds."""
        return spread(list(self.relative(metric).values()))


def changed(group: Group, wanted: Sequence[Condition]) -> list[Changed]:
    """Return the answers of a group that were measured with the same seeds on both, its first choice first."""
    after = {answer.name: answer for answer in own(on(group, wanted), SPLIT)}
    pairs = [Changed(each, after[each.name]) for each in own(group, SPLIT) if each.name in after]
    return [each for each in pairs if each.before.by_seeds.keys() == each.after.by_seeds.keys()]


def best_along(group: Group, wanted: Sequence[Condition], metric: Description) -> dict[Seeds, float]:
    """Return the relative change of the point of a line or curve that is best on the shifted data, chosen there."""
    found: dict[Seeds, float] = {}
    for before, after in zip(group.runs, on(group, wanted).runs, strict=True):
        plain = before.points(SPLIT)
        shifted = {alpha: value(row, metric.name) for alpha, row in after.points(SPLIT).items() if alpha in plain}
        best = max(shifted, key=lambda alpha: metric.merit(shifted[alpha]))
        found[(before.seed,)] = _relative(value(plain[best], metric.name), shifted[best])
    return found
