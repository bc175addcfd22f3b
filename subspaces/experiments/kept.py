"""Numbers that a study keeps beside its results: a JSON file of entries, each with the key of what was measured."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from subspaces.core import files
from subspaces.experiments import locks
from subspaces.experiments.training.runs import RunError


class Kept:
    """The entries of one file, which several processes may read and add to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, key: Mapping[str, Any]) -> Any:
        """Return what was measured of a key; None if nothing was."""
        return next((files.from_json(each["value"]) for each in self._read() if each["key"] == key), None)

    def add(self, key: Mapping[str, Any], value: Any) -> None:
        """Add an entry, in place of an earlier one with the same key."""
        with locks.waited(self.path.with_name(f".{self.path.name}.lock")):  # or what others add would be lost
            entries = [each for each in self._read() if each["key"] != key]
            entries.append(json.loads(files.to_json({"key": key, "value": value})))
            files.write_json(self.path, {"measured": entries, "sha256": _sha256(entries)})

    def items(self) -> list[tuple[dict[str, Any], Any]]:
        """Return all keys, and what was measured of them."""
        return [(each["key"], files.from_json(each["value"])) for each in self._read()]

    def _read(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        try:
            content = json.loads(self.path.read_bytes())
            if content["sha256"] != _sha256(content["measured"]):
                raise ValueError("its checksum is that of another content")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{self.path} is damaged ({error}): remove it, and it is measured again") from None
        entries: list[dict[str, Any]] = content["measured"]
        return entries


def _sha256(entries: Any) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()
