"""The answers of evaluations, and what was chosen, as lines of a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from subspaces.evaluation.answers import named
from subspaces.evaluation.record import Choice, Description, Record
from subspaces.reports.measures import shared

CAPTION = "{split} examples{averaged}; * chosen on the very examples it is reported on"
AVERAGED = {"probabilities": ", mean of probabilities", "mixture": ", mixture of what is predicted"}
SCALED = "the temperature T is fitted on validation examples; it changes no answer, only how sure it is"


@dataclass(frozen=True)
class Line:
    """One line: what answers, on which split it was chosen if it was, and how good it is."""

    what: str
    networks: int
    chosen_on: str | None
    on_test: bool
    metrics: dict[str, float]


def lines(record: Record, split: str = "test") -> Iterator[Line]:
    """Yield what a reader asks for first: the answers, fixed beforehand, each below it scaled; and what was chosen."""
    for answered in record.answers:
        row = record.answer(answered.name, split)
        if row is not None:
            yield Line(answered.words, answered.networks, None, False, row.metrics)
        if row is not None and row.scaled is not None:
            metrics = dict(row.scaled)
            what = f"{answered.words}, temperature-scaled (T = {metrics.pop('temperature'):.3g})"
            yield Line(what, answered.networks, None, False, metrics)
    middle = next((each.words for each in record.answers if each.name == "midpoint"), "midpoint")
    for choice in record.choices:
        if split in choice.reported:
            networks = len(choice.value) if choice.what == "pair" else 1
            what = _chosen(record, choice, middle, split)
            yield Line(what, networks, choice.chosen_on, choice.chosen_on == split, choice.reported[split])


def _chosen(record: Record, choice: Choice, middle: str, split: str) -> str:
    """Return in words what was chosen; a threshold is for the midpoint."""
    if choice.what == "threshold":
        coverage = choice.reported[split]["coverage"]
        return f"{middle} where its confidence is at least {choice.value:.3f}: answers {coverage:.1%}"
    points = choice.value if choice.what == "pair" else [choice.value]
    return f"best {choice.what} by {record.metric(choice.by).label}: {named(points)}"


def headlines(records: Sequence[Record]) -> list[Description]:
    """Return the metrics of a short table, which all of the records have."""
    return [each for each in shared(records) if each.headline] or shared(records)


def cells(line: Line, metrics: Sequence[Description]) -> list[str]:
    """Return the metrics of a line; of a threshold the accuracy is the share of right answers among those given."""
    known = line.metrics | ({"accuracy": 1 - line.metrics["risk"]} if "risk" in line.metrics else {})
    return [each.shown(known[each.name]) if each.name in known else "–" for each in metrics]


def filled(records: Sequence[Record], split: str = "test") -> Table:
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
    return _laid_out(["networks", *(each.title for each in metrics)], rows, caption)


def _laid_out(numbers: Sequence[str], rows: Sequence[tuple[str, ...]], caption: str) -> Table:
    """Return a table that fits a narrow terminal: words fold, numbers stay whole."""
    table = Table(box=box.SIMPLE_HEAD, caption=caption, pad_edge=False, padding=0)
    table.add_column("answer", overflow="fold", min_width=20)
    table.add_column("chosen on", overflow="fold", min_width=9)
    for place, title in enumerate(numbers, 2):
        width = max(len(row[place]) for row in rows if len(row) > place)
        table.add_column(title, justify="right", min_width=max(width, 5), overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def text_table(records: Sequence[Record], split: str = "test") -> str:
    """Return the table as plain text, as wide as it needs to be."""
    table = filled(records, split)
    console = Console(width=10_000, color_system=None)
    console.width = max(20, console.measure(table).maximum)
    texts = ("".join(part.text for part in line).rstrip() for line in console.render_lines(table))
    return "\n".join(texts).strip("\n")
