"""The tables of the page: how good the answers are, on shifted data and against outliers too, what was chosen, runs."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from subspaces.evaluation import conditions
from subspaces.evaluation.comparing import SPLIT, Group
from subspaces.evaluation.conditions import Condition
from subspaces.evaluation.group_answers import GroupAnswer, each_answer
from subspaces.evaluation.rows import Choice, Description
from subspaces.reports.page.content import Page
from subspaces.reports.page.numbers import (
    NONE,
    Table,
    capital,
    duration,
    head,
    seeded,
    shown,
    signed,
    trained_with,
    way,
)
from subspaces.reports.page.walk import middle, run_name
from subspaces.text import listed

CHANGE = Description("change", "relative change", "", percent=True)
SHARE = Description("share", "", "", percent=True)
CHOSEN = {"point": "best point", "pair": "best pair", "threshold": "least confidence"}
MARK = "⚠ chosen on the test set"


def facts(page: Page) -> Table:
    """Return how good each answer is, and what it costs."""
    wanted = {"alone": True, "scaled": True, "together": True}
    answers = [each for group in page.groups for each in each_answer(group, page.split, **wanted)]
    rows = [
        [
            way(each),
            *(shown(each.spread(metric.name), metric, page.images) for metric in page.metrics),
            str(each.networks),
            *([duration(seconds(each))] if page.trained else []),
        ]
        for each in answers
    ]
    alike = [set(group.seeds) == page.common for group in page.groups]
    caption = "How good each answer is, and what it costs" + ", mean ± standard deviation over seeds" * page.several
    return Table(
        f"{caption}; bold: the best{'' if all(alike) else f' of those with {seeded(page.common)}'}",
        ["Answer", *head(page.metrics), "Networks at test", *(["Training time"] if page.trained else [])],
        rows,
        [_heading(each.group, page.common) for each in answers],
        best(page, answers, rows),
        {name: each.meaning for name, each in zip(head(page.metrics), page.metrics, strict=True)},
    )


def _heading(group: Group, common: set[int]) -> str:
    return group.label if set(group.seeds) == common else f"{group.label} – {trained_with(group)}, not compared"


def best(page: Page, answers: list[GroupAnswer], rows: list[list[str]]) -> set[tuple[int, int]]:
    """Return which cells are the best of their metric as they are shown, among answers with the same seeds."""
    found: set[tuple[int, int]] = set()
    compared = [at for at, each in enumerate(answers) if set(each.seeds) == page.common]
    for column, metric in enumerate(page.metrics, 1):
        shown_as = replace(metric, goal=None if metric.goal is None else metric.scale * metric.goal)
        texts = {at: rows[at][column].partition(" ")[0] for at in compared}
        merits = {at: shown_as.merit(float(text)) for at, text in texts.items() if text != NONE}
        if len(answers) > 1:
            found |= {(at, column) for at, merit in merits.items() if merit == max(merits.values())}
    return found


def seconds(answer: GroupAnswer) -> float | None:
    """Return how long the training of an answer takes, on average over seeds; None where that is not known."""
    runs = [each.training for each in answer.group.evaluations]
    known = [each.seconds for each in runs if each is not None and each.seconds is not None]
    return answer.runs * sum(known) / len(known) if len(known) == len(runs) else None


def of_runs(page: Page) -> Table:
    """Return the own answer of each run."""
    rows = []
    for group, one in page.evaluations:
        row = one.answer(one.answers[0].name, page.split)
        seed = [NONE if one.training is None else str(one.training.seeds[0])] if page.trained else []
        values = [shown(row.metrics.get(each.name) if row else None, each, page.images) for each in page.metrics]
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
    more = [("Answered\u00a0%", "coverage"), ("Error among them\u00a0%", "risk")]
    more = more if any("coverage" in reported for _, _, reported in found) else []
    labels = {each.name: capital(each.label) for each in page.metrics} | {"risk": "half of its error"}
    rows = [
        [
            name,
            f"{CHOSEN[choice.what]}: {value_of(choice)}",
            labels.get(choice.by, choice.by),
            MARK if choice.on_test else f"the {choice.chosen_on} split",
            *(shown(reported.get(each.name), each, page.images) for each in page.told),
            *(shown(reported.get(key), SHARE, page.images) for _, key in more),
        ]
        for name, choice, reported in found
    ]
    names = ["Run", "Chosen", "By", "On", *head(page.told), *(label for label, _ in more)]
    return Table(f"What was chosen, and its numbers on the {page.split} split", names, rows) if rows else None


def value_of(choice: Choice) -> str:
    """Return alphas or a threshold as text; equal shares of three vertices or more are the midpoint."""

    def text(value: Any) -> str:
        if not isinstance(value, list):
            return f"{value:.3g}" if isinstance(value, float) else str(value)
        inner = [f"({text(part)})" if isinstance(part, list) else text(part) for part in value]
        return "midpoint" if len(value) > 2 and len(set(inner)) == 1 else ", ".join(inner)

    return text(choice.value)


# Shifted data and outliers


class Shifted:
    """The answers on shifted data that all of some groups were measured on."""

    def __init__(self, page: Page) -> None:
        groups = [group for group in page.groups if len(conditions.conditions([group]))]
        self.page, self.groups = page, groups
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
        """What the shifted data are, and what the relative change is."""
        what = self.page.what
        sources = dict.fromkeys(_source(each.source, what) for each in self.found)
        counts = " or ".join(dict.fromkeys(f"{each.count:,}" for each in self.found))
        return (
            f"{capital(_counted(self.found))}, {listed(sources)}, {counts} {what} each. The relative change is "
            f"(b\u00a0−\u00a0a)/a, from a on the test {what} to b on the shifted ones."
        )

    def table(self) -> Table:
        """Return the answers on average over all sets."""
        page, known = self.page, [each for each in self.page.told if each in self.metrics] or self.metrics[:2]
        rows = []
        for one in self.answers:
            row = [way(one.before)]
            for metric in known:
                row += [shown(each.spread(metric.name), metric, page.images) for each in (one.before, one.after)]
                row.append(signed(shown(one.spread(metric.name), CHANGE, 0)))
            rows.append(row)
        labels = [(capital(each.label), "\u00a0%" * each.percent) for each in known]
        names = [n for a, u in labels for n in (f"{a}, unchanged{u}", f"{a}, shifted{u}", "Relative change\u00a0%")]
        without = "" if len(self.over) == len(self.found) else "; extra corruptions are not in it"
        several = "; mean ± standard deviation over seeds" * page.several
        caption = f"On shifted data, mean over {_counted(self.over)}{without}{several}"
        return Table(caption, ["Answer", *names], rows, [one.before.group.label for one in self.answers])

    def numbers(self) -> Table:
        """Return every answer on every kind and severity."""
        rows = [
            [words, each.label, severity_name(severity)]
            + [shown(one.after.spread(metric.name), metric, self.page.images) for metric in self.metrics]
            for cells in self.cells.values()
            for each, severity, found in cells
            for words, one in ((one.before.label, one) for one in found.values())
        ]
        return Table("Every answer on shifted data", ["Answer", "Data", "Severity", *head(self.metrics)], rows)


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
    told = conditions.severities(found)
    return f"{len(found)} {one}{'' if len(found) == 1 else 's'}{told and f' at {told}'}"


def outliers(page: Page) -> tuple[Table, list[Description]] | None:
    """Return how well the answers tell outliers apart, and by which metrics; None where nothing was measured."""
    groups = [group for group in page.groups if conditions.outlier_sets([group])]
    if not groups or page.split != SPLIT:
        return None
    metrics, rows, names = conditions.outlier_metrics(groups), [], []
    for key in conditions.outlier_sets(groups):
        for group in groups:
            for each in each_answer(conditions.against(group, key), of=[one.name for one in metrics]):
                rows.append([each.label, *(shown(each.spread(one.name), one, page.images) for one in metrics)])
                names.append(f"{key[0]} ({key[1]:,} {page.what})")
    caption = "Telling outliers apart" + ", mean ± standard deviation over seeds" * page.several
    titles = {name: each.meaning for name, each in zip(head(metrics), metrics, strict=True)}
    return (Table(caption, ["Answer", *head(metrics)], rows, names, titles=titles), metrics) if rows else None
