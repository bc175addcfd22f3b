"""The answers of evaluations, and what was chosen, as lines of a table."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from subspaces.evaluation.answers import CHOSEN_ON, named
from subspaces.evaluation.comparing import Group
from subspaces.evaluation.conditions import (
    Changed,
    averaged_over,
    changed,
    conditions,
    outlier_metrics,
    outlier_rows,
    relative,
    shifted_rows,
)
from subspaces.evaluation.curves import shared
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.rows import ABOUT, Answered, Choice, Description

CAPTION = "{split} examples{averaged}; * chosen on the very examples it is reported on"
AVERAGED = {"probabilities": ", mean of probabilities", "mixture": ", mixture of what is predicted"}
OUTLIERS = (
    "AUROC: how often a test example seems more familiar than an outlier; FPR95: outliers left among 95 % of them"
)
SHIFTED = "in brackets: by how much of its value on the test examples it has changed"
SCALED = "the temperature T is fitted on validation examples; it changes no answer, only how sure it is"


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
        chosen = CHOSEN_ON.get(answered.name)
        if row is not None:
            yield Line(answered.words, answered.networks, chosen, chosen == split, row.metrics)
        if row is not None and row.scaled is not None:
            metrics = dict(row.scaled)
            what = f"{answered.words}, temperature-scaled (T = {metrics.pop('temperature'):.3g})"
            yield Line(what, answered.networks, chosen, chosen == split, metrics)
    middle = next((each.words for each in record.answers if each.name == "midpoint"), "midpoint")
    for choice in record.choices:
        if split in choice.reported:
            networks = len(choice.value) if choice.what == "pair" else 1
            what = _chosen(record, choice, middle, split)
            yield Line(what, networks, choice.chosen_on, choice.chosen_on == split, choice.reported[split])


def _chosen(record: Evaluation, choice: Choice, middle: str, split: str) -> str:
    """Return in words what was chosen; a threshold is for the midpoint."""
    if choice.what == "threshold":
        coverage = choice.reported[split]["coverage"]
        return f"{middle} where its confidence is at least {choice.value:.3f}: answers {coverage:.1%}"
    points = choice.value if choice.what == "pair" else [choice.value]
    return f"best {choice.what} by {record.metric(choice.by).label}: {named(points)}"


def headlines(records: Sequence[Evaluation]) -> list[Description]:
    """Return the metrics of a short table, which all of the records have."""
    return [each for each in shared(records) if each.headline] or shared(records)


def cells(line: Line, metrics: Sequence[Description]) -> list[str]:
    """Return the metrics of a line; of a threshold the accuracy is the share of right answers among those given."""
    known = line.metrics | ({"accuracy": 1 - line.metrics["risk"]} if "risk" in line.metrics else {})
    return [each.shown(known[each.name]) if each.name in known else "–" for each in metrics]


def filled(records: Sequence[Evaluation], split: str = "test") -> Table:
    """Return the table of some evaluations."""
    metrics = headlines(records)
    averages = dict.fromkeys(each.average for record in records for each in record.answers if each.average)
    averaged = "".join(AVERAGED.get(name, f", mean of {name}") for name in averages)
    scaled = any(row.scaled is not None for record in records for row in record.rows if row.split == split)
    caption = CAPTION.format(split=split, averaged=averaged) + (f"; {SCALED}" if scaled else "")
    rows: list[tuple[str, ...]] = []
    for record in records:
        rows.append((escape(record.name),))
        for line in lines(record, split):
            chosen = f"{line.chosen_on}{' *' if line.on_test else ''}" if line.chosen_on else "–"
            rows.append((f"  {escape(line.what)}", chosen, str(line.networks), *cells(line, metrics)))
    return _laid_out(["answer", "chosen on"], ["networks", *(each.title for each in metrics)], rows, caption)


def _laid_out(words: Sequence[str], numbers: Sequence[str], rows: Sequence[tuple[str, ...]], caption: str) -> Table:
    """Return a table that fits a narrow terminal: words fold, numbers stay whole."""
    table = Table(box=box.SIMPLE_HEAD, caption=caption, pad_edge=False, padding=0)
    for place, title in enumerate(words):
        table.add_column(title, overflow="fold", min_width=9 if place else 20)
    for place, title in enumerate(numbers, len(words)):
        width = max((len(row[place]) for row in rows if len(row) > place), default=0)
        table.add_column(title, justify="right", min_width=max(width, 5), overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def shift_lines(record: Evaluation) -> Iterator[dict[str, Any]]:
    """Yield the answers on every set of shifted examples: metrics, and how much each has changed."""
    for about, answered, metrics in _each(record, shifted_rows):
        clean = record.answer(answered.name)
        known = {} if clean is None else clean.metrics
        changes = {name: relative(known[name], metrics[name]) for name in metrics if name in known}
        finite = {name: each for name, each in changes.items() if not math.isnan(each)}
        yield {**about, "metrics": metrics, "change": dict.fromkeys(metrics) | finite}


def outlier_lines(record: Evaluation) -> Iterator[dict[str, Any]]:
    """Yield the answers against all outliers."""
    for about, _, metrics in _each(record, outlier_rows):
        yield {**{name: about[name] for name in ("name", "what", "networks")}, "metrics": metrics}


Measured = tuple[dict[str, Any], Answered, dict[str, float]]


def _each(record: Evaluation, wanted: Callable[[Group], Any]) -> Iterator[Measured]:
    """Yield what was measured of each answer on each set, but for metrics that were not."""
    found = wanted(Group(record.name, [record]))
    for key, part in found.groupby(["data", "severity", "group", "source"], sort=False):
        about = dict(zip(("name", "severity", "group", "source"), key, strict=True)) | {"severity": int(key[1])}
        for answered in record.answers:
            metrics = part[[answered.is_of(record.rows[at]) for at in part.index]].drop(
                columns=["method", "seeds", *ABOUT]
            )
            for one in metrics.to_dict("records"):
                values = {str(name): float(value) for name, value in one.items() if not math.isnan(value)}
                yield {**about, "what": answered.words, "networks": answered.networks}, answered, values


def shift_table(records: Sequence[Evaluation]) -> Table:
    """Return the table of answers on shifted data: means over all sets, and how much they differ from clean ones."""
    metrics, rows = headlines(records), list[tuple[str, ...]]()
    for group in (Group(each.name, [each]) for each in records):
        found = averaged_over(conditions([group]))
        count, kinds = sum(len(each.severities) for each in found), len({each.name for each in found})
        sets = f"{count} set{'s' * (count != 1)} of {kinds} kind{'s' * (kinds != 1)}"
        answers = changed(group, found)
        rows += [(escape(f"{group.label}: mean over {sets}"),)] if answers else []
        for one in answers:
            numbers = (_changed(each, one) for each in metrics)
            rows.append((f"  {escape(one.before.words)}", str(one.before.networks), *numbers))
    return _laid_out(["answer on shifted data"], ["networks", *(each.title for each in metrics)], rows, SHIFTED)


def _changed(metric: Description, one: Changed) -> str:
    """Return a metric on shifted data, and by which share of its clean value it differs."""
    value, change = one.after.spread(metric.name).mean, one.spread(metric.name).mean
    return "–" if math.isnan(value) else metric.shown(value) + f" ({100 * change:+.1f} %)" * (not math.isnan(change))


def outlier_table(records: Sequence[Evaluation]) -> Table:
    """Return the table of how well answers tell the test examples from outliers."""
    metrics = [each for each in outlier_metrics([Group(one.name, [one]) for one in records]) if each.headline]
    rows: list[tuple[str, ...]] = []
    for record in records:
        found = list(outlier_lines(record))
        rows += [(escape(record.name),)] if found else []
        for line in found:
            known = line["metrics"]
            numbers = (each.shown(known[each.name]) if each.name in known else "–" for each in metrics)
            rows.append((f"  {escape(line['what'])}", escape(line["name"]), str(line["networks"]), *numbers))
    return _laid_out(["answer", "outliers"], ["networks", *(each.title for each in metrics)], rows, OUTLIERS)


def text_table(records: Sequence[Evaluation], split: str = "test") -> str:
    """Return the table of some evaluations as plain text."""
    return as_text(filled(records, split))


def as_text(table: Table) -> str:
    """Return a table as plain text, as wide as it needs to be."""
    console = Console(width=10_000, color_system=None)
    console.width = max(20, console.measure(table).maximum)
    texts = ("".join(part.text for part in line).rstrip() for line in console.render_lines(table))
    return "\n".join(texts).strip("\n")
