"""The record of a subject while it grows; that of a run goes on from its folder, and is written every few seconds."""

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from subspaces.evaluation.answers import ANSWERS, Family
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.points import Item, kind, to_alpha
from subspaces.evaluation.predictions import Predictions
from subspaces.evaluation.record import FILE, REMEDY, Record, Row
from subspaces.evaluation.run_subject import RunSubject
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import Subject
from subspaces.training import seals
from subspaces.training.config import Execution
from subspaces.training.environment import environment

SECONDS = 3.0  # between two writes: what a kill may lose


class Journal:
    """The record and the predictions of a subject, in memory.

    Args:
        subject: what is measured.
        metrics: how.
        settings: what is measured of it.
    """

    def __init__(self, subject: Subject, metrics: Sequence[Metric], settings: Settings) -> None:
        self.subject, self.metrics, self.settings = subject, list(metrics), settings
        self._found: Record | None = None
        self._predictions: Predictions | None = None

    @property
    def record(self) -> Record:
        """The record; a new one where there is none to continue."""
        if self._found is None:
            self._found = self._new_record()
        return self._found

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
    def predictions(self) -> Predictions:
        """What the points have said so far."""
        if self._predictions is None:
            self._predictions = Predictions()
        return self._predictions

    def answer(self, family: Family) -> None:
        """Note how the family answers, in words."""
        average = self.subject.task.averages[0]
        names = self.settings.answers or self.subject.answers
        found = [ANSWERS.find(name).of(family, average) for name in names]
        answers = [each for each in found if each is not None]
        if answers != self.record.answers:
            self.record.answers = answers
            self.touch()

    def missing(self, items: Iterable[Item]) -> list[Item]:
        """Return the items that are not, or not wholly, measured."""
        if self._found is None or self._predictions is None:
            return list(items)
        done = {row.key for row in self._found.rows}
        known = self._predictions.points
        return [
            item
            for item in items
            if not (item.masks or known.keys() >= set(item.places)) or not done.issuperset(self._keys(item))
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

    def __init__(self, subject: RunSubject, metrics: Sequence[Metric], settings: Settings) -> None:
        super().__init__(subject, metrics, settings)
        self.run = subject
        self.folder: Path = subject.run.folder
        self.changed = False
        self.written_at = time.monotonic()
        self.statistics = {"batch": subject.recipe.batch, "batches": settings.statistics_batches}
        self._stamp = json.dumps({"family": subject.checksum, **self.statistics})
        self._found = self._continued(settings.precision)
        if self._found is not None:
            self._predictions = Predictions.read(self.folder, subject.recipe.key, self._stamp)

    def _continued(self, precision: str) -> Record | None:
        """Return the record that is there, unless it was made from something else.

        Whatever the device chooses by itself may change from one call to the next; a precision that is asked for
        is kept.
        """
        if not seals.there(self.folder / FILE, REMEDY):
            return None
        found = Record.read(self.folder)
        same = found.family == self.run.checksum and found.key == self.run.recipe.key
        same &= all(found.statistics.get(name) == value for name, value in self.statistics.items())
        same &= found.metrics == [metric.described for metric in self.metrics]
        if precision != "auto":
            same &= found.environment.get("execution", {}).get("precision") == precision
        if not same:
            return None
        found.name = self.folder.name  # a folder may have another name by now
        return found

    def _new_record(self) -> Record:
        made = super()._new_record()
        made.recipe = self.run.recipe.to_dict()
        made.statistics = {"images": 0, **self.statistics}
        return made

    def _environment(self) -> dict[str, Any]:
        return {**environment(self.run.execution), "family": self.run.checksum}

    def _note_environment(self) -> None:
        """Note where it went on, if that is somewhere else or with another version than where it began."""
        first, now = self.record.environment, self._environment()
        known = [first, *first.get("later", [])]
        if not any(all(old.get(name) == now[name] for name in now if name != "time") for old in known):
            first["later"] = [*known[1:], now]

    @property
    def predictions(self) -> Predictions:
        """What the points have said so far."""
        if self._predictions is None:
            self._predictions = Predictions(self.run.recipe.key, self._stamp)
        return self._predictions

    def touch(self) -> None:
        """Note that the record has changed, and write it if the last time was some seconds ago."""
        if not self.changed:
            self._note_environment()
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
