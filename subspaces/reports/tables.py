"""Tables of evaluations: how good the answers are, on shifted data and against outliers too, and what was chosen."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from subspaces.evaluation import curves
from subspaces.evaluation.comparing import Group, GroupAnswer, each_answer
from subspaces.evaluation.curves import Condition, changed, shared
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.points import named
from subspaces.evaluation.rows import OUTLIERS, SPLIT
from subspaces.evaluation.statistics import Spread, signed
from subspaces.reports.content import NONE, Page, capital, middle, run_name, seeded, unit

AVERAGED = {"probabilities": ", mean of probabilities", "mixture": ", mixture of what is predicted"}
MARK = "⚠ chosen on the test set"


@dataclass(frozen=True)
class Table:
    """A table of texts, of which the first of each row is its head; rows stand below the names of their groups."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    groups: Sequence[str] = ()  # of each row
    best: set[tuple[int, int]] = field(default_factory=set)  # row and column
    words: int = 1  # so many columns; all others are numbers

    def rich(self) -> RichTable:
        """Return the table for a terminal, where words fold and numbers stay whole."""
        table = RichTable(box=box.SIMPLE_HEAD, caption=self.caption, pad_edge=False, padding=0)
        for place, title in enumerate(self.head[: self.words]):
            table.add_column(title, overflow="fold", min_width=9 if place else 20)
        for place, title in enumerate(self.head[self.words :], self.words):
            width = max((len(row[place]) for row in self.rows), default=0)
            table.add_column(title, justify="right", min_width=max(width, 5), overflow="fold")
        for at, (row, group) in enumerate(zip(self.rows, self.groups, strict=True)):
            if at == 0 or group != self.groups[at - 1]:
                table.add_row(escape(group))
            table.add_row(*map(escape, [f"  {row[0]}", *row[1:]]))
        return table


def as_text(table: RichTable) -> str:
    """Return a table as plain text, as wide as it needs to be."""
    console = Console(width=10_000, color_system=None)
    console.width = max(20, console.measure(table).maximum)
    texts = ("".join(part.text for part in line).rstrip() for line in console.render_lines(table))
    return "\n".join(texts).strip("\n")


# For a terminal: every evaluation by itself


def lines(record: Evaluation, split: str = "test") -> Iterator[dict[str, Any]]:
    """Yield what a reader asks for first: the answers, fixed beforehand, each below it scaled; and what was chosen."""
    fixed = {"chosen_on": None, "on_test": False}
    for answered in record.answers:
        row, about = record.answer(answered.name, split), {"what": answered.words, "networks": answered.networks}
        if row is not None:
            yield {**about, **fixed, "metrics": row.metrics}
        if row is not None and row.scaled is not None:
            metrics = dict(row.scaled)
            what = f"{answered.words}, temperature-scaled (T = {metrics.pop('temperature'):.3g})"
            yield {**about, **fixed, "what": what, "metrics": metrics}
    for choice in record.choices:
        if split in choice.reported:
            points = choice.value if choice.what == "pair" else [choice.value]
            what = f"best {choice.what} by {record.metric(choice.by).label}: {named(points)}"
            about = {"what": what, "networks": len(points), "chosen_on": choice.chosen_on}
            yield {**about, "on_test": choice.chosen_on == split, "metrics": choice.reported[split]}


def lines_on(record: Evaluation, outliers: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the answers on every set of shifted examples, or against all outliers."""
    for row in record.rows:
        for answered in record.answers if row.group and (row.group == OUTLIERS) == outliers else []:
            if answered.is_of(row):
                about = {"name": row.data, "severity": row.severity, "group": row.group, "source": row.source}
                metrics = {k: v for k, v in {**row.metrics, **(row.diversity or {})}.items() if not math.isnan(v)}
                yield {**about, "what": answered.words, "networks": answered.networks, "metrics": metrics}


def filled(records: Sequence[Evaluation], split: str = "test") -> RichTable:
    """Return the table of some evaluations."""
    metrics, rows, names = _headlines(records), list[list[str]](), list[str]()
    for record in records:
        for one in lines(record, split):
            chosen = f"{one['chosen_on']}{' *' * one['on_test']}" if one["chosen_on"] else NONE
            rows.append([one["what"], chosen, str(one["networks"]), *_cells(one["metrics"], metrics)])
            names.append(record.name)
    averages = dict.fromkeys(each.average for record in records for each in record.answers if each.average)
    caption = f"{split} examples{''.join(AVERAGED.get(name, f', mean of {name}') for name in averages)}"
    caption += "; * chosen on the very examples it is reported on"
    if any(row.scaled is not None for record in records for row in record.rows if row.split == split):
        caption += "; the temperature T is fitted on validation examples; it changes no answer, only how sure it is"
    head = ["answer", "chosen on", "networks", *(each.title for each in metrics)]
    return Table(caption, head, rows, names, words=2).rich()


def _headlines(records: Sequence[Evaluation]) -> list[Metric]:
    return [each for each in shared(records) if each.headline] or shared(records)


def _cells(known: dict[str, float], metrics: Sequence[Metric]) -> list[str]:
    return [m.shown(known[m.name]) if m.name in known else NONE for m in metrics]


def shift_table(records: Sequence[Evaluation]) -> RichTable:
    """Return the table of answers on shifted data: means over all sets, and how much they differ from clean ones."""
    metrics, rows, names = _headlines(records), list[list[str]](), list[str]()
    for group in (Group(each.name, [each]) for each in records):
        found = curves.averaged_over(curves.conditions([group]))
        count, kinds = sum(len(each.severities) for each in found), len({each.name for each in found})
        sets = f"{count} set{'s' * (count != 1)} of {kinds} kind{'s' * (kinds != 1)}"
        for one in changed(group, found):
            change = [one.spread(each.name).mean for each in metrics]
            around = ["" if math.isnan(each) else f" ({100 * each:+.1f} %)" for each in change]
            cells = _cells({each.name: one.after.spread(each.name).mean for each in metrics}, metrics)
            cells = [a + b * (a != NONE) for a, b in zip(cells, around, strict=True)]
            rows.append([one.before.words, str(one.before.networks), *cells])
            names.append(f"{group.label}: mean over {sets}")
    head = ["answer on shifted data", "networks", *(each.title for each in metrics)]
    return Table("in brackets: by how much of its value on the test examples it has changed", head, rows, names).rich()


def outlier_table(records: Sequence[Evaluation]) -> RichTable:
    """Return the table of how well answers tell the test examples from outliers."""
    metrics = [each for each in curves.outlier_metrics([Group(one.name, [one]) for one in records]) if each.headline]
    found = [(record.name, line) for record in records for line in lines_on(record, outliers=True)]
    rows = [[line["what"], line["name"], str(line["networks"]), *_cells(line["metrics"], metrics)] for _, line in found]
    head = ["answer", "outliers", "networks", *(each.title for each in metrics)]
    caption = (
        "AUROC: how often a test example seems more familiar than an outlier; FPR95: outliers left among 95 % of them"
    )
    return Table(caption, head, rows, [name for name, _ in found], words=2).rich()


# Of the page: every group, with the mean over its seeds


def head(metrics: Iterable[Metric]) -> list[str]:
    """Return the heads of the columns of some metrics."""
    return [capital(each.label) + unit(each) for each in metrics]


def answers(page: Page) -> Table:
    """Return how good each answer is, and what it costs; of groups with different seeds none is the best."""
    every = (each_answer(group, alone=True, scaled=True, together=True) for group in page.groups)
    found = [each for several in every for each in several]
    alike = len({tuple(group.seeds) for group in page.groups}) == 1
    rows, groups = [], []
    for each in found:
        own = "" if each.seeds == each.group.seeds else f" ({seeded(each.seeds)})"
        numbers = [page.shown(each.spread(metric.name), metric) for metric in page.metrics]
        rows.append([each.words + own, *numbers, str(each.networks)])
        seeds = "" if alike or each.group.training is None else f", {seeded(each.group.seeds)}"
        groups.append(each.group.label + seeds)
    caption = "How good each answer is, and what it costs" + ", mean ± standard deviation over seeds" * page.several
    names = ["Answer", *head(page.metrics), "Networks at test"]
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
        row = one.answer(one.answers[0].name)
        seed = [NONE if one.training is None else str(one.training.seeds[0])] if page.trained else []
        values = [page.shown(row.metrics.get(each.name) if row else None, each) for each in page.metrics]
        rows.append([one.name, group.label, one.answers[0].words, *seed, *values])
    names = ["Run", "Method", "Answer", *(["Seed"] if page.trained else []), *head(page.metrics)]
    return Table(f"The own answer of each run, {SPLIT} split", names, rows, words=3)


def points(page: Page) -> str:
    """Return every evaluated point and ensemble of the split as CSV, in which no name is a formula of a spreadsheet."""
    import pandas as pd

    frames = []
    for _, one in page.evaluations:
        name = "'" * one.name.startswith(("=", "+", "-", "@", "\t", "\r")) + one.name
        frame = one.frame[one.frame["data"] == SPLIT]
        frame.insert(0, "run", name)
        frame.insert(1, "seed", None if one.training is None else one.training.seeds[0])
        frames.append(frame)
    return str(pd.concat(frames).dropna(axis="columns", how="all").to_csv(index=False, float_format="%.6g"))


def choices(page: Page) -> Table | None:
    """Return what was chosen; None where nothing was."""
    labels, rows = {each.name: capital(each.label) for each in page.metrics}, []
    for group, one in page.evaluations:
        for choice in one.choices if group.single or middle(group, one) else []:
            what = f"best {choice.what}: {named(choice.value if choice.what == 'pair' else [choice.value])}"
            on = MARK if choice.on_test else f"the {choice.chosen_on} split"
            known = choice.reported.get(SPLIT, {})
            values = [page.shown(known.get(each.name), each) for each in page.headline]
            rows.append([run_name(group, one), what, labels.get(choice.by, choice.by), on, *values])
    names = ["Run", "Chosen", "By", "On", *head(page.headline)]
    return Table(f"What was chosen, and its numbers on the {SPLIT} split", names, rows, words=4) if rows else None


class Shifted:
    """The answers on shifted data that all of some groups were measured on."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.groups = [group for group in page.groups if curves.conditions([group])]
        self.found = curves.conditions(self.groups)
        self.severities = sorted({severity for each in self.found for severity in each.severities})
        names = [set(curves.shifted_rows(each).dropna(axis="columns", how="all").columns) for each in self.groups]
        self.metrics = [each for each in page.metrics if all(each.name in known for known in names)]
        self.over = curves.averaged_over(self.found)
        self.answers = [one for each in self.groups for one in changed(each, self.over) if self.found]
        sets = [[each.at(severity)] for each in self.found for severity in self.severities]
        self.cells = {
            group.label: [{one.before.words: one for one in changed(group, each)} for each in sets]
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
        rows, names = [], ["Answer"]
        for each in known:
            names += [f"{capital(each.label)}, {when}{unit(each)}" for when in ("unchanged", "shifted")]
            names.append("Relative change\u00a0%")
        for one in self.answers:
            cells = [one.before.words]
            for each in known:
                both = [self.page.shown(answer.spread(each.name), each) for answer in (one.before, one.after)]
                cells += [*both, _signed(one.spread(each.name))]
            rows.append(cells)
        without = "" if len(self.over) == len(self.found) else "; extra corruptions are not in it"
        several = "; mean ± standard deviation over seeds" * self.page.several
        caption = f"On shifted data, mean over {_counted(self.over)}{without}{several}"
        return Table(caption, names, rows, [one.before.group.label for one in self.answers])


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
    if not groups:
        return None
    metrics, rows, names = curves.outlier_metrics(groups), [], []
    for key in curves.outlier_sets(groups):
        for group in groups:
            for each in each_answer(curves.against(group, key), of=[one.name for one in metrics]):
                rows.append([each.label, *(page.shown(each.spread(one.name), one) for one in metrics)])
                names.append(f"{key[0]} ({key[1]:,} {page.what})")
    caption = "Telling outliers apart" + ", mean ± standard deviation over seeds" * page.several
    return (Table(caption, ["Answer", *head(metrics)], rows, names), metrics) if rows else None
