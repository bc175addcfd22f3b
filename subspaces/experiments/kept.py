"""Numbers that a study keeps beside its results: a JSON file of entries, each with the key of what was measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from subspaces.evaluation import files
from subspaces.experiments import locks
from subspaces.experiments.training.run_files import as_run_error


class Kept:
    """The entries of one file, which several processes may read and add to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, key: Mapping[str, Any]) -> Any:
        """Return what was measured of a key; None if nothing was."""
        return next((each["value"] for each in self._read() if each["key"] == key), None)

    def add(self, key: Mapping[str, Any], value: Any) -> None:
        """Add an entry, in place of an earlier one with the same key."""
        lock = self.path.with_name(f".{self.path.name}.lock")
        with locks.attempt(lock, keep=False, wait=True):  # or what others add meanwhile would be lost
            others = [each for each in self._read() if each["key"] != key]
            files.write_json(self.path, {"measured": [*others, {"key": dict(key), "value": value}]})

    def items(self) -> list[tuple[dict[str, Any], Any]]:
        """Return all keys, and what was measured of them."""
        return [(each["key"], each["value"]) for each in self._read()]

    def _read(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        with as_run_error():
            found = files.read_json(self.path, "remove it, and it is measured again")
        return list(found["measured"])
