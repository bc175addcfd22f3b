"""Measurements by key: in memory, and for a run in an append-only file.

Each line of `measurements.jsonl` is a measurement: its key (what was measured, and how), its values, and a checksum of
both. An interrupted evaluation continues from it; what has another key, such as other statistics, stays.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from subspaces.core.files import damaged
from subspaces.evaluation import files
from subspaces.text import Named

FILE = "measurements.jsonl"
REMEDY = "remove that line, or the file, and what it holds is measured again"
Key = Mapping[str, Any]
Values = dict[str, Any]


class Measurements:
    """Measurements by their keys, each a mapping of what JSON can hold; of two with one key the last counts.

    A new one is in the first of the precisions, and one in any of them may be found.
    """

    def __init__(self, path: Path | None = None, precisions: Sequence[str] = ("auto",)) -> None:
        self.path, self.precisions = path, precisions
        self._found: dict[str, dict[str, tuple[Key, Values]]] = {}  # by what it is "of", and the key
        for key, values in [] if path is None or not path.exists() else read(path):
            self._keep(key, values)

    def find(self, key: Key, metrics: Iterable[Named] = ()) -> Values | None:
        """Return what was measured of a key, with at least these metrics."""
        some, names = self._found.get(key["of"], {}), {each.name for each in metrics}
        for precision in self.precisions:
            _, found = some.get(json.dumps({**key, "precision": precision}, sort_keys=True), (key, None))
            if found is not None and names <= set(found.get("metrics", ())):
                return found
        return None

    def items(self, **parts: Any) -> Iterator[tuple[Key, Values]]:
        """Yield keys that have these entries, and what was measured of them; what counts most is the last."""
        for precision in reversed(self.precisions):
            wanted = json.loads(json.dumps({**parts, "precision": precision}))
            for key, values in list(self._found.get(parts["of"], {}).values()):
                if all(key.get(name) == value for name, value in wanted.items()):
                    yield key, values

    def add(self, key: Key, values: Values) -> None:
        """Add a measurement, in place of an earlier one of the same key."""
        entry = json.loads(json.dumps({"key": {"precision": self.precisions[0], **key}, "values": values}))
        self._keep(entry["key"], entry["values"])
        if self.path is not None:
            files.append_line(self.path, entry)

    def _keep(self, key: Key, values: Values) -> None:
        some, name = self._found.setdefault(str(key.get("of")), {}), json.dumps(key, sort_keys=True)
        some.pop(name, None)
        some[name] = key, values


def read(path: Path) -> list[tuple[Key, Values]]:
    """Return the measurements of a file; a last line that was not written to its end is left out."""
    found = files.read_lines(path, REMEDY)
    try:
        return [(dict(entry["key"]), dict(entry["values"])) for entry in found]
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, f"a line without key and values: {error}", REMEDY) from None
