"""The log of a run: a line of JSON for each epoch, each sealed together with all that stand above it."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from subspaces.core import files
from subspaces.experiments.training import seals


class Log:
    """A file of sealed lines; `run` is the key of the run, `remedy` what to do about damage."""

    def __init__(self, path: Path, run: str, remedy: str) -> None:
        self.path = path
        self.run = run
        self.remedy = remedy
        self._seal: str | None = None  # while it is written

    @property
    def seal(self) -> str:
        """The seal of the last line, which stands for all of them; nothing if there is none."""
        if self._seal is None:
            self._seal = (self.read()[1] or [""])[-1]
        return self._seal

    @property
    def size(self) -> int:
        """How many bytes there are."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def read(self, size: int | None = None) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the rows and their seals; the last words of a process that was killed are left out.

        With `size` only so many bytes are read.
        """
        content = self.path.read_bytes()[:size] if seals.there(self.path, self.remedy) else b""
        rows, found = [], list[str]()
        for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
            row = seals.parse(line, f"line {number} of {self.path}", self.remedy)
            seal = row.pop(seals.SEAL, None)
            if seal != self._next(row, found[-1] if found else ""):
                raise self.damaged(f"line {number} does not match its seal")
            rows.append(row)
            found.append(seal)
        return rows, found

    @property
    def whole(self) -> bool:
        """Whether there is nothing after the last whole line."""
        return not self.size or self.path.read_bytes().endswith(b"\n")

    def _next(self, row: Mapping[str, Any], before: str) -> str:
        return seals.digest(self.run, before, row)

    def damaged(self, why: str) -> seals.RunError:
        """Return the error about a log that is not as it was written."""
        return seals.damaged(self.path, why, self.remedy)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one line."""
        seal = self._next(_as_read(row), self.seal)
        files.append(self.path, _line(row, seal))
        self._seal = seal

    def begin(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write these lines in place of those that are there."""
        lines, seal = [], ""
        for row in rows:
            seal = self._next(_as_read(row), seal)
            lines.append(_line(row, seal))
        files.write(self.path, *lines)
        self._seal = seal

    def cut(self, size: int, seal: str) -> None:
        """Go back to when the log had so many bytes, and this seal."""
        if self.size < size:
            raise self.damaged("it is shorter than when the checkpoint was written")
        if (self.read(size)[1] or [""])[-1] != seal:
            raise self.damaged("it is not the log that the checkpoint was written with")
        if self.path.is_file():
            os.truncate(self.path, size)
        self._seal = seal

    def sync(self) -> None:
        """Bring it to the disk, before something is written that counts on it."""
        if self.size:
            files.sync(self.path)

    def remove(self) -> None:
        """Begin with nothing."""
        self.path.unlink(missing_ok=True)
        self._seal = None


def _line(row: Mapping[str, Any], seal: str) -> bytes:
    return (json.dumps({**row, seals.SEAL: seal}) + "\n").encode()


def _as_read(row: Mapping[str, Any]) -> Any:
    """Return a row as it comes back from JSON: names that are numbers become text."""
    return json.loads(json.dumps(dict(row)))
