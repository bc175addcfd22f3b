"""Measuring how well points and answers tell the test examples from outliers: data of other classes."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subspaces.errors import ArgumentError
from subspaces.evaluation import outliers
from subspaces.evaluation.display import counted
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.panel import Panel, lacking
from subspaces.evaluation.points import Item, row_of
from subspaces.evaluation.record import Answered, Outliers, Row, merged
from subspaces.evaluation.shifts import thinned
from subspaces.experiments.data.dataset import Progress


def measure_outliers(journal: Journal, items: Sequence[Item], answers: Sequence[Answered], progress: Progress) -> None:
    """Measure what is missing against outliers: some points along the walk, and all answers."""
    subject, settings = journal.subject, journal.settings
    sets = settings.outliers
    if not sets:
        return
    chosen = thinned(subject, items, answers)
    missing = {name: found for name in sets if (found := lacking(chosen, _earlier(journal, name), subject.task))}
    tick = counted(progress, f"{subject.name}: outliers", len(sets) - len(missing), len(sets))
    if not missing:
        return
    asked = [item for item in chosen if any(item in found for found in missing.values())]
    panel = Panel(subject, asked, settings.statistics_batches)
    inside = _scored(panel, subject.tested(), asked, labelled=True)
    for name, some in missing.items():
        given = sets[name]
        examples = subject.data(given or name) if given is None or isinstance(given, Path) else given
        outside = _scored(panel, examples, some, labelled=False)
        rows = []
        for about in panel.about(some):
            scores = (each[about.key("test")] for each in (inside, outside))
            count, metrics = len(outside[about.key("test")]["entropy"]), outliers.told_apart(*scores)
            if broken := int(outside[about.key("test")]["entropy"].isnan().sum()):
                journal.broken.append((about, name, broken, count))
            rows.append(row_of(subject.shape, about, split="test", count=count, metrics=metrics))
        _add(journal, name, rows)
        tick(1)


Scored = dict[str, dict[str, Tensor]]
"""The scores of each row, by its key and their name."""


@torch.no_grad()
def _scored(panel: Panel, batches: Iterable[Any], items: Sequence[Item], labelled: bool) -> Scored:
    """Return the scores of all examples for every row of items."""
    keys = [about.key("test") for about in panel.about(items)]
    found: dict[str, list[dict[str, Tensor]]] = {key: [] for key in keys}
    for heard in panel.hear(batches, items, labelled=labelled):
        for key, members in zip(keys, heard.rows, strict=True):
            found[key].append(outliers.scores(members))
    if not all(found.values()):
        raise ArgumentError("outliers=…: a loader has no examples; expected at least one batch")
    return {key: {name: torch.cat([one[name] for one in each]) for name in each[0]} for key, each in found.items()}


def _earlier(journal: Journal, name: str) -> list[Row]:
    """Return what was measured already; nobody knows what loaders of the user's own hold."""
    about = (name, outliers.source_of(journal.settings.outliers[name]))
    known = (each.rows for each in journal.record.outliers if (each.name, each.source) == about)
    return [] if about[1] == "given" else next(known, [])


def _add(journal: Journal, name: str, rows: Sequence[Row]) -> None:
    """Add rows to those of the same outliers."""
    record, source = journal.record, outliers.source_of(journal.settings.outliers[name])
    new = Outliers(name, rows[0].count, outliers.METRICS, merged(_earlier(journal, name), rows), source)
    others = [each for each in record.outliers if each.name != name]
    record.outliers = sorted([*others, new], key=lambda each: each.name)
    journal.touch()
