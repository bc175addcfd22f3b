"""Measuring points and answers on shifted examples: every network is prepared once, every set is made once."""

from collections.abc import Sequence

from subspaces.errors import ArgumentError
from subspaces.evaluation.display import counted
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.panel import Panel, lacking
from subspaces.evaluation.points import Item, kind
from subspaces.evaluation.record import Answered, Row, Shift, merged
from subspaces.evaluation.shifted_data import ShiftedSet, order, shifted_sets
from subspaces.evaluation.subject import Subject
from subspaces.experiments.data.dataset import Progress

PAIRS = 6  # of opposite points along a line or curve, the midpoint among them, which are 11 points


def measure_shifts(journal: Journal, items: Sequence[Item], answers: Sequence[Answered], progress: Progress) -> None:
    """Measure what is missing on shifted data: some points along the walk, and all answers."""
    subject, settings = journal.subject, journal.settings
    if settings.corruptions is None:
        return
    sets = shifted_sets(subject, settings.corruptions)
    chosen = thinned(subject, items, answers)
    missing = {each: found for each in sets if (found := lacking(chosen, _earlier(journal, each), subject.task))}
    tick = counted(progress, f"{subject.name}: shifts", len(sets) - len(missing), len(sets))
    if not missing:
        return
    wanted = [item for item in chosen if any(item in found for found in missing.values())]
    panel = Panel(subject, wanted, settings.statistics_batches)
    metrics = headlines(journal.metrics)
    for each, some in missing.items():
        rows = panel.measure(each.batches(), some, metrics)
        if not rows:
            raise ArgumentError(f"the loader of {each.name!r} has no examples: expected at least one batch")
        journal.broken += [(about, each.name, broken, count) for about, broken, count in panel.broken]
        _add(journal, each, rows)
        tick(1)


def headlines(metrics: Sequence[Metric]) -> list[Metric]:
    """Return the metrics that are measured on shifted data."""
    return [each for each in metrics if each.headline] or list(metrics)


def thinned(subject: Subject, items: Sequence[Item], answers: Sequence[Answered]) -> list[Item]:
    """Return the items of all answers and some of a walk: pairs along a line or curve, vertices and the midpoint."""
    averages = subject.task.averages[:1]
    if kind(subject.shape) == "interval":
        walk = [item for item in items if item.ensemble == "along"]
        last = len(walk) - 1
        kept = [walk[round(step * last / (PAIRS - 1))] for step in range(PAIRS)] if len(walk) > PAIRS else walk
    else:
        kept = [item for item in items if item.role in ("vertex", "midpoint")]

    def answers_with(item: Item) -> bool:
        found = [(each.role, each.alphas, each.average, each.networks) for each in item.rows(averages)]
        return any((each.role, each.alphas, each.average, each.networks) in found for each in answers)

    return [item for item in items if item in kept or answers_with(item)]


def _earlier(journal: Journal, wanted: ShiftedSet) -> list[Row]:
    """Return what was measured on a set already; nobody knows what loaders of the user's own hold."""
    about = (wanted.name, wanted.severity, wanted.source)
    known = (each.rows for each in journal.record.shifts if (each.name, each.severity, each.source) == about)
    return [] if wanted.source == "given" else next(known, [])


def _add(journal: Journal, measured: ShiftedSet, rows: Sequence[Row]) -> None:
    """Add rows to those of the same set; what was measured on one of that name from elsewhere is replaced."""
    record = journal.record
    about = (measured.name, measured.severity)
    others = [each for each in record.shifts if (each.name, each.severity) != about]
    new = Shift(*about, measured.group, measured.source, rows[0].count, merged(_earlier(journal, measured), rows))
    record.shifts = sorted([*others, new], key=lambda each: order(each.name, each.severity))
    journal.touch()
