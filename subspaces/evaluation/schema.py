"""The values of a JSON file against the types of the dataclasses that they become."""

import dataclasses
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

NUMBERS = {float: (int, float), int: (int,)}


def mistake(value: Any, kind: Any, where: str) -> str | None:
    """Return in words the first value that is not of its type; None if there is none."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _least([mistake(value, one, where) for one in inner])
    if origin is list and isinstance(value, list):
        return _first(mistake(each, inner[0], f"{where}[{at}]") for at, each in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return _first(mistake(each, inner[1], f"{where}.{key}") for key, each in value.items())
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = _hints(kind)
        return _first(mistake(each, hints.get(key, Any), f"{where}.{key}") for key, each in value.items())
    if _plain(value, kind):
        return None
    text = repr(value)
    return f"{where.lstrip('.')} is {text if len(text) < 40 else type(value).__name__}"


def _plain(value: Any, kind: Any) -> bool:
    """Say whether a value without parts is of a type; a float may be written as a whole number."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind in NUMBERS:
        return isinstance(value, NUMBERS[kind]) and not isinstance(value, bool)
    return kind is Any or (kind in (str, bool, NoneType) and isinstance(value, kind))


def _least(found: list[str | None]) -> str | None:
    """Return None if one of several types fits, or what is wrong by the one that looked deepest into the value."""
    return None if None in found else max(found, key=lambda text: len(str(text)))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _first(found: Any) -> str | None:
    return next((text for text in found if text is not None), None)
