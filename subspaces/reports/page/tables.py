"""The tables of the page: how good the answers are, on shifted data and against outliers too, what was chosen, runs."""

import math
from collections.abc import Iterable
from typing import Any

from subspaces.evaluation import curves
from subspaces.evaluation.comparing import GroupAnswer, each_answer
from subspaces.evaluation.curves import Condition
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.rows import SPLIT
from subspaces.evaluation.statistics import Spread, signed
from subspaces.reports.page.content import NONE, Page, capital, seeded, unit
from subspaces.reports.page.walk import middle, run_name
from subspaces.reports.table import Table

MARK = "⚠ chosen on the test set"


def head(metrics: Iterable[Metric]) -> list[str]:
    """Return the heads of the columns of some metrics."""
    return [capital(each.label) + unit(each) for each in metrics]


def answers(page: Page) -> Table:
    """Return how good each answer is, and what it costs; of groups with different seeds none is the best."""
    wanted = {"alone": True, "scaled": True, "together": True}
    found = [each for group in page.groups for each in each_answer(group, page.split, **wanted)]
    alike = len({tuple(group.seeds) for group in page.groups}) == 1
    rows = []
    for each in found:
        own = "" if each.seeds == each.group.seeds else f" ({seeded(each.seeds)})"
        numbers = [page.shown(each.spread(metric.name), metric) for metric in page.metrics]
        rows.append([each.words + own, *numbers, str(each.networks)])
    seeds = {each.label: "" if alike or each.training is None else f", {seeded(each.seeds)}" for each in page.groups}
    caption = "How good each answer is, and what it costs" + ", mean ± standard deviation over seeds" * page.several
    names = ["Answer", *head(page.metrics), "Networks at test"]
    groups = [each.group.label + seeds[each.group.label] for each in found]
    return Table(caption + "; bold: the best" * alike, names, rows, groups, _best(page, found) if alike else set())


def _best(page: Page, answers: list[GroupAnswer]) -> set[tuple[int, int]]:
    """Return which cells are the best of their metric as they are shown, among answers with the same seeds."""
    found: set[tuple[int, int]] = set()
    compared = [at for at, each in enumerate(answers) if each.seeds == each.group.seeds and len(answers) > 1]
    for column, metric in enumerate(page.metrics, 1):
        digits = page.places(metric) + (2 if metric.percent else 0)
        merits = {at: metric.merit(round(answers[at].spread(metric.name).mean, digits)) for at in compared}
        best = max(merits.values(), default=-math.inf) - 1e-12
        found |= {(at, column) for at, merit in merits.items() if merit > best > -math.inf}
    return found


def of_runs(page: Page) -> Table:
    """Return the own answer of each run."""
    rows = []
    for group, one in page.evaluations:
        row = one.answer(one.answers[0].name, page.split)
        seed = [NONE if one.training is None else str(one.training.seeds[0])] if page.trained else []
        values = [page.shown(row.metrics.get(each.name) if row else None, each) for each in page.metrics]
        rows.append([one.name, group.label, one.answers[0].words, *seed, *values])
    names = ["Run", "Method", "Answer", *(["Seed"] if page.trained else []), *head(page.metrics)]
    return Table(f"The own answer of each run, {page.split} split", names, rows, words=3)


def points(page: Page) -> str:
    """Return every evaluated point and ensemble of the split as CSV, in which no name is a formula of a spreadsheet."""
    import pandas as pd

    frames = []
    for _, one in page.evaluations:
        name = "'" * one.name.startswith(("=", "+", "-", "@", "\t", "\r")) + one.name
        frame = one.frame[one.frame["data"] == page.split]
        frame.insert(0, "run", name)
        frame.insert(1, "seed", None if one.training is None else one.training.seeds[0])
        frames.append(frame)
    return str(pd.concat(frames).dropna(axis="columns", how="all").to_csv(index=False, float_format="%.6g"))


def choices(page: Page) -> Table | None:
    """Return what was chosen; None where nothing was."""
    labels = {each.name: capital(each.label) for each in page.metrics}
    rows = [
        [
            run_name(group, one),
            f"best {choice.what}: {value_of(choice.value)}",
            labels.get(choice.by, choice.by),
            MARK if choice.on_test else f"the {choice.chosen_on} split",
            *(page.shown(choice.reported.get(page.split, {}).get(each.name), each) for each in page.headline),
        ]
        for group, one in page.evaluations
        for choice in one.choices
        if group.single or middle(group, one)
    ]
    names = ["Run", "Chosen", "By", "On", *head(page.headline)]
    return Table(f"What was chosen, and its numbers on the {page.split} split", names, rows, words=4) if rows else None


def value_of(value: Any) -> str:
    """Return alphas as text; equal shares of three vertices or more are the midpoint."""
    if not isinstance(value, list):
        return f"{value:.3g}"
    inner = [f"({value_of(part)})" if isinstance(part, list) else value_of(part) for part in value]
    return "midpoint" if len(value) > 2 and len(set(inner)) == 1 else ", ".join(inner)


# Shifted data and outliers


class Shifted:
    """The answers on shifted data that all of some groups were measured on."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.groups = [group for group in page.groups if page.split == SPLIT and curves.conditions([group])]
        self.found = curves.conditions(self.groups)
        self.severities = sorted({severity for each in self.found for severity in each.severities})
        names = [set(curves.shifted_rows(each).dropna(axis="columns", how="all").columns) for each in self.groups]
        self.metrics = [each for each in page.metrics if all(each.name in known for known in names)]
        self.over = curves.averaged_over(self.found)
        self.answers = [one for each in self.groups for one in curves.changed(each, self.over) if self.found]
        sets = [[each.at(severity)] for each in self.found for severity in self.severities]
        self.cells = {
            group.label: [{one.before.words: one for one in curves.changed(group, each)} for each in sets]
            for group in self.groups
        }

    @property
    def counted(self) -> str:
        """How many sets of how many examples."""
        counts = " or ".join(dict.fromkeys(f"{each.count:,}" for each in self.found))
        return f"{_counted(self.found)}, {counts} {self.page.what} each"

    def table(self) -> Table:
        """Return the answers on average over all sets."""
        known = [each for each in self.page.headline if each in self.metrics] or self.metrics[:2]
        rows, names = [], []
        for one in self.answers:
            cells = [one.before.words]
            for each in known:
                both = [self.page.shown(answer.spread(each.name), each) for answer in (one.before, one.after)]
                cells += [*both, _signed(one.spread(each.name))]
            rows.append(cells)
        for each in known:
            names += [f"{capital(each.label)}, {when}{unit(each)}" for when in ("unchanged", "shifted")]
            names.append("Relative change\u00a0%")
        without = "" if len(self.over) == len(self.found) else "; extra corruptions are not in it"
        several = "; mean ± standard deviation over seeds" * self.page.several
        caption = f"On shifted data, mean over {_counted(self.over)}{without}{several}"
        return Table(caption, ["Answer", *names], rows, [one.before.group.label for one in self.answers])


def _signed(change: Spread) -> str:
    if math.isnan(change.mean):
        return NONE
    return signed(100 * change.mean, 1) + ("" if change.std is None else f" ± {100 * change.std:.1f}")


def _counted(found: list[Condition]) -> str:
    kind = "corruption" if all(each.group != "given" for each in found) else "set"
    severities = curves.severities(found)
    return f"{len(found)} {kind}{'' if len(found) == 1 else 's'}{severities and f' at {severities}'}"


def outliers(page: Page) -> tuple[Table, list[Metric]] | None:
    """Return how well the answers tell outliers apart, and by which metrics; None where nothing was measured."""
    groups = [group for group in page.groups if curves.outlier_sets([group])]
    if not groups or page.split != SPLIT:
        return None
    metrics, rows, names = curves.outlier_metrics(groups), [], []
    for key in curves.outlier_sets(groups):
        for group in groups:
            for each in each_answer(curves.against(group, key), of=[one.name for one in metrics]):
                rows.append([each.label, *(page.shown(each.spread(one.name), one) for one in metrics)])
                names.append(f"{key[0]} ({key[1]:,} {page.what})")
    caption = "Telling outliers apart" + ", mean ± standard deviation over seeds" * page.several
    return (Table(caption, ["Answer", *head(metrics)], rows, names), metrics) if rows else None
