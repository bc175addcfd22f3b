"""The record of a subject while it grows; that of a run goes on from its folder, and is written every few seconds."""

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from subspaces.evaluation.examples import Predictions
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.points import Item, kind, to_alpha
from subspaces.evaluation.record import FILE, REMEDY, Record, Row
from subspaces.evaluation.run_subject import RunSubject
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import Subject
from subspaces.training import seals
from subspaces.training.environment import environment
from subspaces.training.execution import Execution

SECONDS = 3.0  # between two writes: what a kill may lose


class Journal:
    """The record and the predictions of a subject, measured by some metrics, in memory."""

    def __init__(self, subject: Subject, metrics: Sequence[Metric], settings: Settings) -> None:
        self.subject, self.metrics, self.settings = subject, list(metrics), settings
        self.record, self.predictions = self._begun()

    def _begun(self) -> tuple[Record, Predictions]:
        """Return both as they are at the beginning."""
        return self._new_record(), Predictions()

    def _new_record(self) -> Record:
        subject = self.subject
        shape = {
            "kind": kind(subject.shape),
            "vertices": subject.shape.vertices,
            "members": subject.terms.vertices,
            "type": type(subject.shape).__name__,
        }
        return Record(
            name=subject.name,
            shape=shape,
            task=subject.task.name,
            metrics=[metric.described for metric in self.metrics],
            answers=[],
            environment=self._environment(),
            dataset=subject.dataset,
            statistics={"images": 0, "batches": self.settings.statistics_batches, **subject.distances},
        )

    def _environment(self) -> dict[str, Any]:
        return environment(Execution(device=self.subject.device))

    @property
    def shown(self) -> list[str]:
        """The metrics that planes show and by which points are chosen: those that the task names, or the first two."""
        names = [each.name for each in self.metrics]
        return [name for name in names if name in self.subject.task.shown] or names[:2]

    def note(self, **parts: Any) -> None:
        """Put parts into the record that are not there already."""
        for name, value in parts.items():
            if getattr(self.record, name) != value:
                setattr(self.record, name, value)
                self.touch()

    def missing(self, items: Iterable[Item]) -> list[Item]:
        """Return the items that are not, or not wholly, measured."""
        done = {row.key for row in self.record.rows}
        known = self.predictions.points.keys() if self.subject.task.keeps else None
        return [
            item
            for item in items
            if not done.issuperset(self._keys(item)) or not (item.masks or known is None or known >= set(item.places))
        ]

    def _keys(self, item: Item) -> list[str]:
        """Return the keys of all rows that an item gives."""
        alphas = [to_alpha(place) for place in item.places]
        rows: list[list[Any]] = [["point", item.role, [to_alpha(place)], None, 1] for place in item.points]
        if item.masks:
            rows = []
        if item.ensemble:
            averages = self.subject.task.averages
            rows += [["ensemble", item.ensemble, alphas, average, item.networks] for average in averages]
        return [json.dumps([split, *row]) for split in self.subject.splits for row in rows]

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows to the record, and learn from them how many examples a split has."""
        added = list(rows)
        self.record.add(added)
        self.record.dataset["splits"] |= {row.split: row.count for row in added}
        self.touch()

    def touch(self) -> None:
        """Note that the record has changed."""

    def write(self) -> None:
        """Keep what is new."""


class RunJournal(Journal):
    """The record and the predictions of one run.

    Where the folder has them, made from the same family with the same metrics and batch-norm statistics, they are
    continued; else they begin empty, and replace what is there with the first thing that is measured.
    """

    subject: RunSubject

    def __init__(self, subject: RunSubject, settings: Settings) -> None:
        self.folder = subject.run.folder
        self.changed, self.written_at = False, time.monotonic()
        self.statistics = {"batch": subject.recipe.batch, "batches": settings.statistics_batches}
        super().__init__(subject, subject.task.metrics, settings)

    def _begun(self) -> tuple[Record, Predictions]:
        key = self.subject.recipe.key
        stamp = json.dumps({"family": self.subject.checksum, **self.statistics})
        record = self._continued()
        known = None if record is None else Predictions.read(self.folder, key, stamp)
        return record or self._new_record(), known or Predictions(key, stamp)

    def _continued(self) -> Record | None:
        """Return the record that is there, unless it was made from something else.

        Whatever the device chooses by itself may change from one call to the next; a precision that is asked for
        is kept.
        """
        if not seals.there(self.folder / FILE, REMEDY):
            return None
        found = Record.read(self.folder)
        same = found.family == self.subject.checksum and found.key == self.subject.recipe.key
        same &= all(found.statistics.get(name) == value for name, value in self.statistics.items())
        same &= found.metrics == [metric.described for metric in self.metrics]
        used = found.environment.get("execution", {}).get("precision")
        if not same or self.settings.precision not in ("auto", used):
            return None
        found.name = self.folder.name  # a folder may have another name by now
        return found

    def _new_record(self) -> Record:
        made = super()._new_record()
        made.recipe = self.subject.recipe.to_dict()
        made.statistics = {"images": 0, **self.statistics}
        return made

    def _environment(self) -> dict[str, Any]:
        return {**environment(self.subject.execution), "family": self.subject.checksum}

    def touch(self) -> None:
        """Note that the record has changed, and where; write it if the last time was some seconds ago."""
        if not self.changed:
            first, now = self.record.environment, self._environment()
            known = [first, *first.get("later", [])]  # where, and with which version, it began and went on
            if not any(all(old.get(name) == now[name] for name in now if name != "time") for old in known):
                first["later"] = [*known[1:], now]
        self.changed = True
        if time.monotonic() - self.written_at > SECONDS:
            self.write()

    def write(self) -> None:
        """Write both files if there is something new; the record last, which relies on the other."""
        if self.changed:
            self.predictions.write(self.folder)
            self.record.write(self.folder)
            self.changed = False
        self.written_at = time.monotonic()
