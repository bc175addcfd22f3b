"""The record of a run while it grows: what is there already, and writing it every few seconds."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from subspaces.evaluation import examples
from subspaces.evaluation.bench import Bench
from subspaces.evaluation.points import Item, to_alpha
from subspaces.evaluation.predictions import Predictions
from subspaces.evaluation.record import FILE, REMEDY, Record, Row
from subspaces.training import seals
from subspaces.training.environment import environment

SECONDS = 3.0  # between two writes: what a kill may lose


class Journal:
    """The record and the predictions of one run.

    Where the folder has them, made from the same family with the same batch-norm statistics, they are
    continued; else they begin empty, and replace what is there with the first thing that is measured.
    """

    def __init__(self, bench: Bench, statistics: int | None, precision: str = "auto") -> None:
        self.bench = bench
        self.folder: Path = bench.run.folder
        self.changed = False
        self.written_at = time.monotonic()
        self.statistics = {"batch": bench.recipe.batch, "batches": statistics}
        self._stamp = json.dumps({"family": bench.checksum, **self.statistics})
        self._found = self._continued(precision)
        self._predictions = None
        if self._found is not None:
            self._predictions = Predictions.read(self.folder, bench.recipe.key, self._stamp)
        self.fresh = self._found is None

    def _continued(self, precision: str) -> Record | None:
        """Return the record that is there, unless it was made from something else.

        Whatever the device chooses by itself may change from one call to the next; a precision that is asked for
        is kept.
        """
        if not seals.there(self.folder / FILE, REMEDY):
            return None
        found = Record.read(self.folder)
        same = found.family == self.bench.checksum and found.key == self.bench.recipe.key
        same &= all(found.statistics.get(name) == value for name, value in self.statistics.items())
        if precision != "auto":
            same &= found.environment.get("execution", {}).get("precision") == precision
        if not same:
            return None
        found.run = self.folder.name  # a folder may have another name by now
        return found

    @property
    def record(self) -> Record:
        """The record; a new one where there is none to continue."""
        if self._found is None:
            self._found = self._new_record()
        return self._found

    def _new_record(self) -> Record:
        dataset, recipe = self.bench.dataset, self.bench.recipe
        splits = {split: len(getattr(dataset, split)) for split in self.bench.splits}
        described = {"name": dataset.name, "classes": list(dataset.classes), "splits": splits}
        statistics = {"images": 0, **self.statistics}
        return Record(self.folder.name, recipe.to_dict(), self._environment(), described, statistics)

    def _environment(self) -> dict[str, Any]:
        return {**environment(self.bench.execution), "family": self.bench.checksum}

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
            labels = {split: getattr(self.bench.dataset, split).labels for split in self.bench.splits}
            self._predictions = Predictions(self.bench.recipe.key, self._stamp, labels)
        return self._predictions

    def missing(self, items: Iterable[Item]) -> list[Item]:
        """Return the items that are not, or not wholly, measured."""
        if self._found is None or self._predictions is None:
            return list(items)
        done = {row.key for row in self._found.rows}
        known = self._predictions.points
        return [
            item
            for item in items
            if not known.keys() >= set(item.places) or not done.issuperset(keys(item, self.bench.splits))
        ]

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows to the record."""
        self.record.add(rows)
        self.touch()

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
            if self.fresh:  # what is left of another family's evaluation
                (self.folder / examples.FILE).unlink(missing_ok=True)
                self.fresh = False
            self.predictions.write(self.folder)
            self.record.write(self.folder)
            self.changed = False
        self.written_at = time.monotonic()


def keys(item: Item, splits: Iterable[str]) -> list[str]:
    """Return the keys of all rows that an item gives."""
    alphas = [to_alpha(place) for place in item.places]
    rows: list[list[Any]] = [["point", item.role, [to_alpha(place)], None] for place in item.points]
    if item.ensemble:
        rows += [["ensemble", item.ensemble, alphas, average] for average in ("probabilities", "logits")]
    return [json.dumps([split, *row]) for split in splits for row in rows]
