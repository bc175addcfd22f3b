"""Dataclasses from the values of a JSON file, each checked against its type."""

import dataclasses
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

NUMBERS = {float: (int, float), int: (int,)}
LATER = {"later": True}
"""Metadata of a field that older files do not have: it has its default there."""


def build(kind: Any, value: Any, where: str = "") -> Any:
    """Return what a value of a file stands for; a ValueError names the first that is not of its type."""
    origin, inner = _parts(kind)
    if origin in (Union, UnionType):
        return _either(inner, value, where)
    if origin is list and isinstance(value, list):
        simple = _simple(inner[0]).issuperset(map(type, value))  # as most of a file, which is lists of numbers
        return value if simple else [build(inner[0], each, f"{where}[{at}]") for at, each in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: build(inner[1], each, f"{where}.{key}") for key, each in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = _hints(kind)  # type: ignore[arg-type]
        if lacking := [name for name in _needed(kind) if name not in value]:  # type: ignore[arg-type]
            raise ValueError(f"{where.lstrip('.') or 'it'} has no {lacking[0]!r}")
        return kind(**{key: build(hints.get(key, Any), each, f"{where}.{key}") for key, each in value.items()})  # type: ignore[operator]
    if not _plain(value, kind):
        text = repr(value)
        raise ValueError(f"{where.lstrip('.')} is {text if len(text) < 40 else type(value).__name__}")
    return value


def _either(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    """Return a value as the first of several types that fits, or say what is wrong by the one that looked deepest."""
    if any(type(value) in _simple(kind) for kind in kinds):
        return value
    wrong = []
    for kind in kinds:
        try:
            return build(kind, value, where)
        except ValueError as error:
            wrong.append(error)
    raise max(wrong, key=lambda error: len(str(error)))


def _plain(value: Any, kind: Any) -> bool:
    """Say whether a value without parts is of a type; a float may be written as a whole number."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind in NUMBERS:
        return isinstance(value, NUMBERS[kind]) and not isinstance(value, bool)
    return kind is Any or (kind in (str, bool, NoneType) and isinstance(value, kind))


@cache
def _simple(kind: Any) -> frozenset[type]:
    """Return the types of which a value needs no further look to be of a kind."""
    origin, inner = _parts(kind)
    if origin in (Union, UnionType):
        return frozenset[type]().union(*map(_simple, inner))
    return frozenset(NUMBERS.get(kind, (kind,) if kind in (str, bool, NoneType) else ()))


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind), get_args(kind)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in dataclasses.fields(kind)}


@cache
def _needed(kind: Any) -> list[str]:
    """Return the fields that every file has."""
    return [entry.name for entry in dataclasses.fields(kind) if not entry.metadata.get("later")]
