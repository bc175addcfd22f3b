"""What was measured, by what it was measured of and how: in memory, and for a run in a file that is only added to.

`measurements.jsonl` has a line for each measurement: its key, its values and a checksum of both. An evaluation that
was interrupted continues from it; what has another key, such as another number of batches for the statistics, stays.
"""

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from subspaces.core import files
from subspaces.errors import ArgumentError
from subspaces.evaluation.files import CHECKSUM, checksum

FILE = "measurements.jsonl"
Key = Mapping[str, Any]
Values = dict[str, Any]


class MeasurementWarning(UserWarning):
    """Lines of a file of measurements that are damaged."""


class Measurements:
    """Measurements by their keys, each a mapping of what JSON can hold; of two with one key the last counts."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._found: dict[str, dict[str, tuple[Key, Values]]] = {}  # by what it is "of", and the key
        self._end: int | None = None  # of the whole lines, where something follows that was not written to its end
        if path is not None and path.exists():
            lines, broken, self._end = read(path)
            for key, values in lines:
                self._keep(key, values)
            if broken:
                numbers = ", ".join(map(str, broken))
                warnings.warn(
                    f"{path}: cannot read line {numbers}, what was measured there is measured again: if a copy of the "
                    "file is at hand, put it back",
                    MeasurementWarning,
                    stacklevel=2,
                )

    def find(self, key: Key, metrics: Iterable[str] = ()) -> Values | None:
        """Return what was measured of a key, with at least these metrics."""
        _, found = self._found.get(key["of"], {}).get(_name(key), (key, None))
        return None if found is None or not set(metrics) <= set(found.get("metrics", ())) else found

    def items(self, **parts: Any) -> Iterator[tuple[Key, Values]]:
        """Yield keys that have these entries, and what was measured of them, the last measured at the end."""
        wanted = json.loads(json.dumps(parts))
        for key, values in list(self._found.get(parts["of"], {}).values()):
            if all(key.get(name) == value for name, value in wanted.items()):
                yield key, values

    def add(self, key: Key, values: Values) -> None:
        """Add a measurement, in place of an earlier one of the same key."""
        entry = json.loads(json.dumps({"key": dict(key), "values": values}))
        self._keep(entry["key"], entry["values"])
        if self.path is not None:
            if self._end is not None:
                os.truncate(self.path, self._end)
                self._end = None
            files.append(self.path, json.dumps({**entry, CHECKSUM: checksum(entry)}).encode() + b"\n")

    def _keep(self, key: Key, values: Values) -> None:
        some, name = self._found.setdefault(str(key.get("of")), {}), _name(key)
        some.pop(name, None)
        some[name] = key, values


def _name(key: Key) -> str:
    return json.dumps(key, sort_keys=True)


def read(path: Path) -> tuple[list[tuple[Key, Values]], list[int], int | None]:
    """Return the measurements of a file, the numbers of the lines that are damaged, and the end of the whole ones.

    A last line that was not written to its end is no damage: it is left out, and written over.
    """
    content = path.read_bytes()
    *lines, last = content.split(b"\n")
    found: list[tuple[Key, Values]] = []
    broken: list[int] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict) or entry.pop(CHECKSUM, None) != checksum(entry):
                raise ArgumentError("its content does not match its checksum")
            found.append((dict(entry["key"]), dict(entry["values"])))
        except (ValueError, TypeError, KeyError, RecursionError):
            broken.append(number)
    return found, broken, len(content) - len(last) if last else None
