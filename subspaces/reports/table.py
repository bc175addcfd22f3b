"""Tables of evaluations: how good the answers are, on shifted data and against outliers too, and what was chosen."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from subspaces.evaluation.comparing import Group
from subspaces.evaluation.curves import averaged_over, changed, conditions, outlier_metrics, shared
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.points import named
from subspaces.evaluation.rows import OUTLIERS

CAPTION = "{split} examples{averaged}; * chosen on the very examples it is reported on"
AVERAGED = {"probabilities": ", mean of probabilities", "mixture": ", mixture of what is predicted"}
OUTLIERS_CAPTION = (
    "AUROC: how often a test example seems more familiar than an outlier; FPR95: outliers left among 95 % of them"
)
SHIFTED_CAPTION = "in brackets: by how much of its value on the test examples it has changed"
SCALED_CAPTION = "; the temperature T is fitted on validation examples; it changes no answer, only how sure it is"


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


@dataclass(frozen=True)
class Line:
    """One line: what answers, on which split it was chosen if it was, and how good it is."""

    what: str
    networks: int
    chosen_on: str | None
    on_test: bool
    metrics: dict[str, float]


def lines(record: Evaluation, split: str = "test") -> Iterator[Line]:
    """Yield what a reader asks for first: the answers, fixed beforehand, each below it scaled; and what was chosen."""
    for answered in record.answers:
        row = record.answer(answered.name, split)
        if row is not None:
            yield Line(answered.words, answered.networks, None, False, row.metrics)
        if row is not None and row.scaled is not None:
            metrics = dict(row.scaled)
            what = f"{answered.words}, temperature-scaled (T = {metrics.pop('temperature'):.3g})"
            yield Line(what, answered.networks, None, False, metrics)
    for choice in record.choices:
        if split in choice.reported:
            points = choice.value if choice.what == "pair" else [choice.value]
            what = f"best {choice.what} by {record.metric(choice.by).label}: {named(points)}"
            yield Line(what, len(points), choice.chosen_on, choice.chosen_on == split, choice.reported[split])


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
    metrics = _headlines(records)
    averages = dict.fromkeys(each.average for record in records for each in record.answers if each.average)
    averaged = "".join(AVERAGED.get(name, f", mean of {name}") for name in averages)
    scaled = any(row.scaled is not None for record in records for row in record.rows if row.split == split)
    found = [(record.name, line) for record in records for line in lines(record, split)]
    rows = [
        [
            line.what,
            f"{line.chosen_on}{' *' * line.on_test}" if line.chosen_on else "–",
            str(line.networks),
            *_cells(line.metrics, metrics),
        ]
        for _, line in found
    ]
    head = ["answer", "chosen on", "networks", *(each.title for each in metrics)]
    caption = CAPTION.format(split=split, averaged=averaged) + SCALED_CAPTION * scaled
    return Table(caption, head, rows, [name for name, _ in found], words=2).rich()


def _headlines(records: Sequence[Evaluation]) -> list[Metric]:
    return [each for each in shared(records) if each.headline] or shared(records)


def _cells(known: dict[str, float], metrics: Sequence[Metric]) -> list[str]:
    return [each.shown(known[each.name]) if each.name in known else "–" for each in metrics]


def shift_table(records: Sequence[Evaluation]) -> RichTable:
    """Return the table of answers on shifted data: means over all sets, and how much they differ from clean ones."""
    metrics, rows, names = _headlines(records), list[list[str]](), list[str]()
    for group in (Group(each.name, [each]) for each in records):
        found = averaged_over(conditions([group]))
        count, kinds = sum(len(each.severities) for each in found), len({each.name for each in found})
        sets = f"{count} set{'s' * (count != 1)} of {kinds} kind{'s' * (kinds != 1)}"
        for one in changed(group, found):
            after = {each.name: one.after.spread(each.name).mean for each in metrics}
            change = {each.name: one.spread(each.name).mean for each in metrics}
            around = {name: "" if math.isnan(each) else f" ({100 * each:+.1f} %)" for name, each in change.items()}
            cells = ["–" if math.isnan(after[m.name]) else m.shown(after[m.name]) + around[m.name] for m in metrics]
            rows.append([one.before.words, str(one.before.networks), *cells])
            names.append(f"{group.label}: mean over {sets}")
    head = ["answer on shifted data", "networks", *(each.title for each in metrics)]
    return Table(SHIFTED_CAPTION, head, rows, names).rich()


def outlier_table(records: Sequence[Evaluation]) -> RichTable:
    """Return the table of how well answers tell the test examples from outliers."""
    metrics = [each for each in outlier_metrics([Group(one.name, [one]) for one in records]) if each.headline]
    found = [(record.name, line) for record in records for line in lines_on(record, outliers=True)]
    rows = [[line["what"], line["name"], str(line["networks"]), *_cells(line["metrics"], metrics)] for _, line in found]
    head = ["answer", "outliers", "networks", *(each.title for each in metrics)]
    return Table(OUTLIERS_CAPTION, head, rows, [name for name, _ in found], words=2).rich()
