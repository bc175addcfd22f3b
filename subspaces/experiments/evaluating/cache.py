"""Numbers of networks that answer together and are no rows of one run's record, in a JSON file beside them."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from subspaces.core.files import damaged
from subspaces.errors import ArgumentError
from subspaces.evaluation import files
from subspaces.evaluation.classification import Classes
from subspaces.evaluation.metrics import of_task, tally
from subspaces.experiments.locks import waited

SCHEMA = 1
REMEDY = "remove it, and what it holds is measured again"


@dataclass(frozen=True)
class Measured:
    """How good an answer is on each split; `key` says what it is the answer of, and how it was made."""

    key: dict[str, Any]
    environment: dict[str, Any]
    images: dict[str, int]
    metrics: dict[str, dict[str, float]]

    @classmethod
    def of(cls, key: Mapping[str, Any], run: Any, answers: Mapping[str, Tensor]) -> "Measured":
        """Measure log-probabilities [n, classes] on each split of a run's data."""
        metrics, found = of_task("classification"), {}
        for split, answer in answers.items():
            labels = getattr(run.images_of, split).labels.to(answer.device)
            found[split] = tally(metrics, [(Classes(answer), labels)])
        return cls(dict(key), run.environment, {split: len(answers[split]) for split in answers}, found)


class Shelf:
    """The measured of one sealed file; `run` is the key of the run that it belongs to, if it is of one."""

    def __init__(self, path: Path, run: str = "") -> None:
        self.path = path
        self.run = run
        self._stamp: tuple[int, int] | None = None
        self._found: list[Measured] = []

    def read(self) -> list[Measured]:
        """Return everything that is there; the file is read again only if it has been replaced."""
        if not self.path.exists():
            return []
        now = self.path.stat()
        stamp = now.st_ino, now.st_mtime_ns
        if stamp != self._stamp:
            self._stamp, self._found = stamp, self._parsed()
        return self._found

    def _parsed(self) -> list[Measured]:
        values = files.read_json(self.path, REMEDY)
        try:
            found: list[Measured] = files.build(list[Measured], values.get("measured"), "measured")
            return found if values.get("schema") == SCHEMA else []
        except ArgumentError as error:
            raise damaged(self.path, error, REMEDY) from None

    def find(self, key: Mapping[str, Any], precision: str = "auto") -> Measured | None:
        """Return what was measured of a key; a precision that is asked for must be that of the numbers."""
        names = {metric.name for metric in of_task("classification")}  # there may be one more by now
        for each in self.read():
            used = each.environment.get("execution", {}).get("precision")
            whole = all(names <= found.keys() for found in each.metrics.values())
            if each.key == key and precision in ("auto", used) and whole:
                return each
        return None

    def add(self, measured: Measured) -> None:
        """Add to the file, in place of an earlier one of the same key."""
        with waited(self.path.with_name(f".{self.path.name}.lock")):  # what others add meanwhile would be lost
            others = [each for each in self.read() if each.key != measured.key]
            found = [dataclasses.asdict(each) for each in (*others, measured)]
            files.write_json(self.path, {"schema": SCHEMA, "measured": found})
