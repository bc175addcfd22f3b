"""Plain JSON files with a checksum of their content inside, and dataclasses from what they hold."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from subspaces.core import files
from subspaces.core.files import CHECKSUM, damaged
from subspaces.errors import ArgumentError
from subspaces.text import shown


def checksum(content: Any) -> str:
    """Return the SHA-256 of what JSON can hold, whatever the order of its names."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all; numbers that are not finite are NaN and Infinity, as Python writes them."""
    content = json.loads(json.dumps(value))  # names of numbers become text
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


def build(kind: Any, value: Any, where: str = "it") -> Any:
    """Return a value of a file as the type that it is to have; an error names the first part that has another."""
    origin, inner = get_origin(kind), get_args(kind)
    made = value
    if origin in (Union, UnionType):
        made = _either(inner, value, where)
    elif origin is list and isinstance(value, list):
        if inner[0] is not float or set(map(type, value)) != {float}:  # as most of a file is
            made = [build(inner[0], each, f"{where}[{at}]") for at, each in enumerate(value)]
    elif origin is dict and isinstance(value, dict):
        made = {name: build(inner[1], each, f"{where}.{name}") for name, each in value.items()}
    elif dataclasses.is_dataclass(kind) and isinstance(value, dict):
        made = _dataclass(kind, value, where)
    elif not _fits(kind, value):
        raise ArgumentError(f"{where} is {shown(value)}")
    return made


def _either(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    """Return a value of one of several types, of which at most one is a list, and None."""
    if value is None and NoneType in kinds:
        return None
    others = [each for each in kinds if each is not NoneType]
    like = [each for each in others if (get_origin(each) is list) == isinstance(value, list)]
    return build((like or others)[0], value, where)


def _fits(kind: Any, value: Any) -> bool:
    """Say whether a value without parts is of a type; a float may be written as a whole number."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind in (int, float):
        number = isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
        return number and (isinstance(value, float) or abs(value) < 1 << 1024)
    return kind is Any or (isinstance(kind, type) and isinstance(value, kind))


def _dataclass(kind: Any, value: dict[str, Any], where: str) -> Any:
    hints, needed = _fields(kind)
    if lacking := needed - value.keys():
        raise ArgumentError(f"{where} has no {min(lacking)!r}")
    if unknown := value.keys() - hints.keys():
        raise ArgumentError(f"{where} has an unknown {min(unknown)!r}")
    return kind(**{name: build(hints[name], each, f"{where}.{name}") for name, each in value.items()})


@cache
def _fields(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the types of a dataclass's fields, and the names of those without a default."""
    hints, entries, missing = get_type_hints(kind), dataclasses.fields(kind), dataclasses.MISSING
    needed = {each.name for each in entries if each.default is missing and each.default_factory is missing}
    return {each.name: hints[each.name] for each in entries}, frozenset(needed)


def plain(value: Any) -> Any:
    """Return a value, and the dataclasses in it, as what JSON knows."""
    if dataclasses.is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return value if set(map(type, value)) == {float} else [plain(each) for each in value]
    return value
