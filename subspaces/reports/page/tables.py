"""The tables of the page: how good the answers are, on shifted data and against outliers too, what was chosen, runs."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from subspaces.evaluation import conditions
from subspaces.evaluation.comparing import SPLIT, Group
from subspaces.evaluation.conditions import Condition
from subspaces.evaluation.group_answers import GroupAnswer, each_answer
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.statistics import Spread
from subspaces.reports.page.content import NONE, Page, capital, seeded, unit
from subspaces.reports.page.walk import middle, run_name
from subspaces.reports.table import Table
from subspaces.text import listed

CHANGE = Metric("change", "relative change", "", percent=True)
CHOSEN = {"point": "best point", "pair": "best pair"}
MARK = "⚠ chosen on the test set"


def head(metrics: Iterable[Metric]) -> list[str]:
    """Return the heads of the columns of some metrics."""
    return [capital(each.label) + unit(each) for each in metrics]


def answers(page: Page) -> Table:
    """Return how good each answer is, and what it costs."""
    wanted = {"alone": True, "scaled": True, "together": True}
    found = [each for group in page.groups for each in each_answer(group, page.split, **wanted)]
    rows = [
        [
            _way(each),
            *(page.shown(each.spread(metric.name), metric) for metric in page.metrics),
            str(each.networks),
            *([_duration(_seconds(each))] if page.trained else []),
        ]
        for each in found
    ]
    alike = all(set(group.seeds) == page.common for group in page.groups)
    caption = "How good each answer is, and what it costs" + ", mean ± standard deviation over seeds" * page.several
    return Table(
        f"{caption}; bold: the best{'' if alike else f' of those with {seeded(page.common)}'}",
        ["Answer", *head(page.metrics), "Networks at test", *(["Training time"] if page.trained else [])],
        rows,
        [_heading(each.group, page.common) for each in found],
        _best(page, found),
        {name: each.meaning for name, each in zip(head(page.metrics), page.metrics, strict=True)},
    )


def _heading(group: Group, common: set[int]) -> str:
    if set(group.seeds) == common:
        return group.label
    return f"{group.label} – {'no run' if group.training is None else seeded(group.seeds)}, not compared"


def _way(answer: GroupAnswer) -> str:
    """Return an answer in words, with its seeds where they are not those of its group."""
    return answer.words if answer.seeds == answer.group.seeds else f"{answer.words} ({seeded(answer.seeds)})"


def _best(page: Page, answers: list[GroupAnswer]) -> set[tuple[int, int]]:
    """Return which cells are the best of their metric as they are shown, among answers with the same seeds."""
    found: set[tuple[int, int]] = set()
    compared = [at for at, each in enumerate(answers) if set(each.seeds) == page.common]
    for column, metric in enumerate(page.metrics, 1):
        digits = page.places(metric) + (2 if metric.percent else 0)
        merits = {at: metric.merit(round(answers[at].spread(metric.name).mean, digits)) for at in compared}
        best = max(merits.values(), default=-math.inf)
        if len(answers) > 1 and best > -math.inf:
            found |= {(at, column) for at, merit in merits.items() if math.isclose(merit, best, abs_tol=1e-12)}
    return found


def _seconds(answer: GroupAnswer) -> float | None:
    """Return how long the training of an answer takes, on average over seeds; None where that is not known."""
    runs = [each.training for each in answer.group.evaluations]
    known = [each.seconds for each in runs if each is not None and each.seconds is not None]
    return answer.runs * sum(known) / len(known) if len(known) == len(runs) else None


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    size, name = (1, "s") if seconds < 100 else (60, "min") if seconds < 6000 else (3600, "h")
    return f"{seconds / size:{'.2g' if seconds / size < 10 else '.0f'}}\u00a0{name}"


def of_runs(page: Page) -> Table:
    """Return the own answer of each run."""
    rows = []
    for group, one in page.evaluations:
        row = one.answer(one.answers[0].name, page.split)
        seed = [NONE if one.training is None else str(one.training.seeds[0])] if page.trained else []
        values = [page.shown(row.metrics.get(each.name) if row else None, each) for each in page.metrics]
        rows.append([one.name, group.label, one.answers[0].words, *seed, *values])
    names = ["Run", "Method", "Answer", *(["Seed"] if page.trained else []), *head(page.metrics)]
    return Table(f"The own answer of each run, {page.split} split", names, rows)


def points(page: Page) -> str:
    """Return every evaluated point and ensemble of the split as CSV, in which no name is a formula of a spreadsheet."""
    import pandas as pd

    frames = []
    for _, one in page.evaluations:
        name = f"'{one.name}" if one.name[:1] in ("=", "+", "-", "@", "\t", "\r") else one.name
        seed = None if one.training is None else one.training.seeds[0]
        frame = one.frame
        frames.append(frame[frame["data"] == page.split].assign(run=name, seed=seed))
    frame = pd.concat(frames).dropna(axis="columns", how="all")
    about = [name for name in ("run", "seed") if name in frame]
    return str(frame[[*about, *frame.columns.drop(about)]].to_csv(index=False, float_format="%.6g"))


def choices(page: Page) -> Table | None:
    """Return what was chosen; None where nothing was."""
    found = [
        (run_name(group, one), choice, choice.reported.get(page.split, {}))
        for group, one in page.evaluations
        for choice in one.choices
        if group.single or middle(group, one)
    ]
    labels = {each.name: capital(each.label) for each in page.metrics}
    rows = [
        [
            name,
            f"{CHOSEN[choice.what]}: {value_of(choice.value)}",
            labels.get(choice.by, choice.by),
            MARK if choice.on_test else f"the {choice.chosen_on} split",
            *(page.shown(reported.get(each.name), each) for each in page.headline),
        ]
        for name, choice, reported in found
    ]
    names = ["Run", "Chosen", "By", "On", *head(page.headline)]
    return Table(f"What was chosen, and its numbers on the {page.split} split", names, rows) if rows else None


def value_of(value: Any) -> str:
    """Return alphas as text; equal shares of three vertices or more are the midpoint."""
    if not isinstance(value, list):
        return f"{value:.3g}" if isinstance(value, float) else str(value)
    inner = [f"({value_of(part)})" if isinstance(part, list) else value_of(part) for part in value]
    return "midpoint" if len(value) > 2 and len(set(inner)) == 1 else ", ".join(inner)


# Shifted data and outliers


class Shifted:
    """The answers on shifted data that all of some groups were measured on."""

    def __init__(self, page: Page) -> None:
        groups = [group for group in page.groups if conditions.conditions([group])]
        self.page = page
        self.found = conditions.conditions(groups) if groups and page.split == SPLIT else []
        self.severities = sorted({severity for each in self.found for severity in each.severities})
        names = [set(conditions.shifted_rows(each).dropna(axis="columns", how="all").columns) for each in groups]
        self.metrics = [each for each in page.metrics if all(each.name in known for known in names)]
        self.over = conditions.averaged_over(self.found)
        self.answers = [one for each in groups for one in conditions.changed(each, self.over)] if self.found else []
        self.cells = {group.label: list(self._cells(group)) for group in groups if self.found}

    def _cells(self, group: Group) -> Iterator[tuple[Condition, int, dict[str, conditions.Changed]]]:
        """Yield every kind and severity with the answers of a group, by what they are called."""
        for each in self.found:
            for severity in self.severities:
                yield each, severity, {one.before.words: one for one in conditions.changed(group, [each.at(severity)])}

    @property
    def lead(self) -> str:
        """What the shifted data are."""
        sources = dict.fromkeys(_source(each.source, self.page.what) for each in self.found)
        counts = " or ".join(dict.fromkeys(f"{each.count:,}" for each in self.found))
        return f"{capital(_counted(self.found))}, {listed(sources)}, {counts} {self.page.what} each."

    def table(self) -> Table:
        """Return the answers on average over all sets."""
        known = [each for each in self.page.headline if each in self.metrics] or self.metrics[:2]
        rows = [
            [_way(one.before), *(text for metric in known for text in self._compared(one, metric))]
            for one in self.answers
        ]
        labels = [(capital(each.label), unit(each)) for each in known]
        names = [n for a, u in labels for n in (f"{a}, unchanged{u}", f"{a}, shifted{u}", "Relative change\u00a0%")]
        without = "" if len(self.over) == len(self.found) else "; extra corruptions are not in it"
        several = "; mean ± standard deviation over seeds" * self.page.several
        caption = f"On shifted data, mean over {_counted(self.over)}{without}{several}"
        return Table(caption, ["Answer", *names], rows, [one.before.group.label for one in self.answers])

    def _compared(self, one: conditions.Changed, metric: Metric) -> list[str]:
        change = one.spread(metric.name)
        both = [self.page.shown(each.spread(metric.name), metric) for each in (one.before, one.after)]
        return [*both, _signed(change)]

    def numbers(self) -> Table:
        """Return every answer on every kind and severity."""
        rows = [
            [one.before.label, each.label, severity_name(severity)]
            + [self.page.shown(one.after.spread(metric.name), metric) for metric in self.metrics]
            for cells in self.cells.values()
            for each, severity, found in cells
            for one in found.values()
        ]
        return Table("Every answer on shifted data", ["Answer", "Data", "Severity", *head(self.metrics)], rows)


def _signed(change: Spread) -> str:
    """Return a relative change in percent with its sign; zero has none."""
    if math.isnan(change.mean):
        return NONE
    mean = f"{100 * change.mean:+.1f}".replace("-", "−")
    around = "" if change.std is None else f" ± {100 * change.std:.1f}"
    return ("0.0" if mean[1:] == "0.0" else mean) + around


def severity_name(severity: int) -> str:
    """Return a severity in words."""
    return str(severity) if severity else "as given"


def _source(source: str, what: str) -> str:
    made, _, seed = source.partition(", ")
    if made == "made":
        return f"made of the test {what}{seed and f' with {seed}'}"
    return "given by loaders of your own" if source == "given" else f"read from {source}"


def _counted(found: list[Condition]) -> str:
    one = "corruption" if all(each.group != "given" for each in found) else "set"
    severities = conditions.severities(found)
    return f"{len(found)} {one}{'' if len(found) == 1 else 's'}{severities and f' at {severities}'}"


def outliers(page: Page) -> tuple[Table, list[Metric]] | None:
    """Return how well the answers tell outliers apart, and by which metrics; None where nothing was measured."""
    groups = [group for group in page.groups if conditions.outlier_sets([group])]
    if not groups or page.split != SPLIT:
        return None
    metrics, rows, names = conditions.outlier_metrics(groups), [], []
    for key in conditions.outlier_sets(groups):
        for group in groups:
            for each in each_answer(conditions.against(group, key), of=[one.name for one in metrics]):
                rows.append([each.label, *(page.shown(each.spread(one.name), one) for one in metrics)])
                names.append(f"{key[0]} ({key[1]:,} {page.what})")
    caption = "Telling outliers apart" + ", mean ± standard deviation over seeds" * page.several
    titles = {name: each.meaning for name, each in zip(head(metrics), metrics, strict=True)}
    return (Table(caption, ["Answer", *head(metrics)], rows, names, titles=titles), metrics) if rows else None
