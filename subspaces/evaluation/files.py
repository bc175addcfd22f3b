"""What is stored: JSON with a checksum inside, measurements by key, dataclasses of both, and where they were made."""

import dataclasses
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch

from subspaces.core import storage
from subspaces.core.storage import damaged
from subspaces.errors import ArgumentError
from subspaces.text import Named
from subspaces.version import __version__

CHECKSUM = "sha256"
MEASUREMENTS = "measurements.jsonl"
Key = Mapping[str, Any]
Values = dict[str, Any]


def checksum(content: Any) -> str:
    """Return the SHA-256 of what JSON can hold, whatever the order of its names."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all; dataclasses become objects, NaN and infinity are as Python writes them."""
    content = json.loads(json.dumps(value, default=vars))  # names of numbers become text
    storage.write(path, _in_lines({**content, CHECKSUM: checksum(content)}).encode())


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Return the content of a file that `write_json` wrote."""
    try:
        if not path.is_file():
            raise ArgumentError("it is not a file" if path.exists() or path.is_symlink() else "it is not there")
        return _checked(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error, remedy) from None


def _checked(text: bytes) -> dict[str, Any]:
    """Return the object that a text holds, without its checksum, which must be right."""
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ArgumentError(f"expected an object, found a {type(content).__name__}")
    if content.pop(CHECKSUM, None) != checksum(content):
        raise ArgumentError("it was changed by hand, or by a fault: its content does not match its checksum")
    return content


def _in_lines(value: Mapping[str, Any]) -> str:
    """Return JSON with a line for each entry, and for each row of a table, which is quicker than an indent."""

    def entry(each: Any) -> str:
        rows = isinstance(each, list) and each and isinstance(each[0], (dict, list))
        return "[\n" + ",\n".join(map(json.dumps, each)) + "\n]" if rows else json.dumps(each)

    return "{\n" + ",\n".join(f"{json.dumps(name)}: {entry(each)}" for name, each in value.items()) + "\n}\n"


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append a mapping to a file as a line of JSON with a checksum, in place of what is left of an unfinished line."""
    content = json.loads(json.dumps(value))
    with storage.naming(path), open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps({**content, CHECKSUM: checksum(content)}).encode() + b"\n")


def read_lines(path: Path, remedy: str) -> list[dict[str, Any]]:
    """Return what `append_line` has written, without a last line that was not written to its end.

    Any other damage is a `FileError` that names the file and the number of the line.
    """
    if not path.is_file():
        raise damaged(path, "it is not a file", remedy)
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            found.append(_checked(line))
        except (ValueError, RecursionError) as error:
            raise damaged(path, f"line {number}: {error}", remedy) from None
    return found


def write_plain_json(path: Path, value: Any) -> None:
    """Write a value as an indented JSON file without a checksum, for people and other programs."""
    storage.write(path, (to_json(value, indent=2) + "\n").encode())


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, with {"float": "nan"} and the like for the numbers that JSON does not have."""
    text = json.dumps(value, default=dataclasses.asdict)
    finite = json.loads(text, parse_constant=lambda constant: {"float": str(float(constant))})
    return json.dumps(finite, indent=indent, allow_nan=False)


def build(kind: Any, value: Any) -> Any:
    """Return what a file holds as a dataclass, or as a list of such; other types are as they were written."""
    made: Any = next((each for each in (kind, *get_args(kind)) if dataclasses.is_dataclass(each)), None)
    if made is not None and isinstance(value, list):
        return [build(made, each) for each in value]
    if made is None or value is None:
        return value
    hints = _hints(made)
    try:
        return made(**{name: build(hints.get(name), each) for name, each in value.items()})
    except (AttributeError, TypeError) as error:
        raise ArgumentError(f"a {made.__name__}: {error}") from None


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


class Measurements:
    """Measurements by their keys, each a mapping of what JSON can hold; of two with one key the last counts.

    With a path each is a line of an append-only file, from which an interrupted evaluation continues: a key (what was
    measured, and how) and its values. What has another key, such as other statistics, stays.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._found: dict[str, tuple[Key, Values]] = {}
        for key, values in [] if path is None or not path.exists() else read_measurements(path):
            self._keep(key, values)

    def find(self, key: Key, metrics: Iterable[Named] = ()) -> Values | None:
        """Return what was measured of a key, with at least these metrics."""
        _, found = self._found.get(json.dumps(key, sort_keys=True), (key, None))
        there = found is not None and {each.name for each in metrics} <= set(found.get("metrics", ()))
        return found if there else None

    def items(self, **parts: Any) -> Iterator[tuple[Key, Values]]:
        """Yield keys that have these entries, and what was measured of them, the latest last."""
        wanted = json.loads(json.dumps(parts))
        for key, values in list(self._found.values()):
            if all(key.get(name) == value for name, value in wanted.items()):
                yield key, values

    def add(self, key: Key, values: Values) -> bool:
        """Add a measurement, in place of an earlier one of the same key; return False if the same is there already."""
        entry = json.loads(json.dumps({"key": key, "values": values}, default=vars))
        if self.find(entry["key"]) == entry["values"]:
            return False
        self._keep(entry["key"], entry["values"])
        if self.path is not None:
            append_line(self.path, entry)
        return True

    def _keep(self, key: Key, values: Values) -> None:
        name = json.dumps(key, sort_keys=True)
        self._found.pop(name, None)
        self._found[name] = key, values


def read_measurements(path: Path) -> list[tuple[Key, Values]]:
    """Return the measurements of a file; a last line that was not written to its end is left out."""
    lines = read_lines(path, "remove that line, or the file, and what it holds is measured again")
    return [(entry["key"], entry["values"]) for entry in lines]


# The environment


def environment(execution: Mapping[str, Any], processes: int = 1) -> dict[str, Any]:
    """Return versions, commit, hardware, processes, and the settings, of which one is the device."""
    device = str(execution["device"])
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "subspaces": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "hardware": torch.cuda.get_device_name(device) if device.startswith("cuda") else processor(),
        "threads": torch.get_num_threads(),
        **({"processes": processes} if processes > 1 else {}),
        "execution": dict(execution),
    }


def commit() -> str | None:
    """Return the commit of the repository that tracks this package's source, with a plus sign if it has changed since.

    None if no repository tracks it. Where the source is a copy, SUBSPACES_COMMIT says of which commit.
    """
    if named := os.environ.get("SUBSPACES_COMMIT"):
        return named
    file = Path(__file__).resolve()
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # a hook sets GIT_DIR
    how: Any = {"cwd": file.parent, "env": own, "stderr": subprocess.DEVNULL, "timeout": 10, "text": True}
    try:
        subprocess.check_output(["git", "ls-files", "--error-unmatch", file.name], **how)
        described = ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
        return str(subprocess.check_output(described, **how)).strip()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def processor() -> str:
    """Return the name of the CPU and the number of its cores that we may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {cores} cores"
