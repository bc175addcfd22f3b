"""Plain JSON files with a checksum of their content inside, and dataclasses from what they hold."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from subspaces.core import files
from subspaces.core.files import CHECKSUM, damaged
from subspaces.errors import ArgumentError


def checksum(content: Any) -> str:
    """Return the SHA-256 of what JSON can hold, whatever the order of its names."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all; dataclasses become objects, NaN and infinity are as Python writes them."""
    content = json.loads(json.dumps(value, default=vars))  # names of numbers become text
    files.write(path, files.in_lines({**content, CHECKSUM: checksum(content)}).encode())


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Return the content of a file that `write_json` wrote."""
    try:
        if not path.is_file():
            raise ArgumentError("it is not a file" if path.exists() or path.is_symlink() else "it is not there")
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict) or content.pop(CHECKSUM, None) != checksum(content):
            raise ArgumentError(files.CHANGED)
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error, remedy) from None
    return content


def plain(made: Any) -> Any:
    """Return a dataclass, and those in it, as dictionaries."""
    return dataclasses.asdict(made)


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
