"""The record of a subject while it grows; that of a run goes on from its folder, and is written every few seconds."""

import json
import time
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from subspaces.evaluation.examples import Predictions
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.points import Item, kind
from subspaces.evaluation.record import FILE, REMEDY, About, Record, Row
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import Subject
from subspaces.experiments.training import seals

SECONDS = 3.0  # between two writes: what a kill may lose
SHARE = 10  # times as long as a write took is measured before the next


class PredictionWarning(UserWarning):
    """Predictions that are NaN."""


class Journal:
    """The record and the predictions of a subject, measured by some metrics.

    Where the folder of a run has them, made from the same family with the same metrics and batch-norm statistics, they
    are continued; else they begin empty, and replace what is there with the first thing that is measured.
    """

    def __init__(self, subject: Subject, metrics: Sequence[Metric], settings: Settings) -> None:
        self.subject, self.metrics, self.settings = subject, list(metrics), settings
        self.changed, self.written_at, self.took = False, time.monotonic(), 0.0
        self.statistics = {**subject.noted, "batches": settings.statistics_batches}
        key = "" if subject.recipe is None else subject.recipe.key
        stamp = json.dumps({"family": subject.checksum, **self.statistics})
        found = self._continued(key)
        known = None if found is None or subject.folder is None else Predictions.read(subject.folder, key, stamp)
        self.broken: list[tuple[About, str, int, int]] = []  # predictions of NaN: whose, on what, how many of how many
        self.record, self.predictions = found or self._new_record(), known or Predictions(key, stamp)

    def _continued(self, key: str) -> Record | None:
        """Return the record that is there, unless it was made from something else.

        Whatever the device chooses by itself may change from one call to the next; a precision that is asked for
        is kept.
        """
        folder = self.subject.folder
        if folder is None or not seals.there(folder / FILE, REMEDY):
            return None
        found = Record.read(folder)
        same = found.family == self.subject.checksum and found.key == key
        same &= all(found.statistics.get(name) == value for name, value in self.statistics.items())
        same &= found.metrics == [metric.described for metric in self.metrics]
        used = found.environment.get("execution", {}).get("precision")
        if not same or self.settings.precision not in ("auto", used):
            return None
        found.name = folder.name  # it may have another name by now
        return found

    def _new_record(self) -> Record:
        subject = self.subject
        return Record(
            name=subject.name,
            shape={
                "kind": kind(subject.shape),
                "vertices": subject.shape.vertices,
                "members": subject.terms.vertices,
                "type": type(subject.shape).__name__,
            },
            task=subject.task.name,
            metrics=[metric.described for metric in self.metrics],
            answers=[],
            environment=self._environment(),
            dataset=subject.dataset,
            statistics={"images": 0, **self.statistics},
            recipe=None if subject.recipe is None else subject.recipe.to_dict(),
        )

    def _environment(self) -> dict[str, Any]:
        family = {} if self.subject.checksum is None else {"family": self.subject.checksum}
        return self.subject.environment | family

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
        task, splits, known = self.subject.task, self.subject.splits, self.predictions.points.keys()
        done = {row.key for row in self.record.rows}

        def whole(item: Item) -> bool:
            keys = [about.key(split) for split in splits for about in item.rows(task.averages)]
            return done.issuperset(keys) and (not task.keeps or bool(item.masks) or known >= set(item.places))

        return [item for item in items if not whole(item)]

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows to the record, and learn from them how many examples a split has."""
        added = list(rows)
        self.record.add(added)
        self.record.dataset["splits"] |= {row.split: row.count for row in added}
        self.touch()

    def warn_of_broken(self) -> None:
        """Warn once of all predictions that were NaN."""
        if not self.broken:
            return
        worst = max(self.broken, key=lambda each: (each[2] / each[3], each[1] == "test", each[0].kind == "point"))
        about, where, broken, count = worst
        of = f"alpha = {' and '.join(map(str, about.alphas))}" if self.subject.walks else "the network"
        more = f", and some in {len(self.broken) - 1} other measurements" if len(self.broken) > 1 else ""
        self.broken = []
        warnings.warn(
            f"{self.subject.name}: {broken} of {count} predictions on the {where} examples are NaN at {of}{more}. They "
            "count as wrong, and NLL, calibration and the like are NaN there: check the inputs for NaN and the weights "
            "for a training that diverged",
            PredictionWarning,
            stacklevel=2,
        )

    def touch(self) -> None:
        """Note that the record has changed, and where; write it if the last time was some seconds ago."""
        if self.subject.folder is None:
            return
        if not self.changed:
            first, now = self.record.environment, self._environment()
            known = [first, *first.get("later", [])]  # where, and with which version, it began and went on
            if not any(all(old.get(name) == now[name] for name in now if name != "time") for old in known):
                first["later"] = [*known[1:], now]
        self.changed = True
        if time.monotonic() - self.written_at > max(SECONDS, SHARE * self.took):
            self.write()

    def write(self) -> None:
        """Write both files of a run if there is something new; the record last, which relies on the other."""
        begin = time.monotonic()
        if self.changed and self.subject.folder is not None:
            self.predictions.write(self.subject.folder)
            self.record.write(self.subject.folder)
            self.changed = False
        self.written_at = time.monotonic()
        self.took = self.written_at - begin
