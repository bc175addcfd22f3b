"""The fields of a configuration: each says what it is for, what it may be, and what a label calls it."""

import dataclasses
import typing
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, NamedTuple

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.text import nearest

MOST = 2**31 - 1
MOST_FLOAT = 1e30  # weights are float32, whose largest number an optimizer's products stay below


class Limit(NamedTuple):
    """Which numbers a field may be, in words and as a test."""

    expected: str
    good: Callable[[Any], bool]


POSITIVE = Limit("at least 1", lambda value: value >= 1)
NATURAL = Limit("at least 0", lambda value: value >= 0)
ABOVE_ZERO = Limit("more than 0", lambda value: value > 0)
FRACTION = Limit("a fraction of at least 0 and below 1", lambda value: 0 <= value < 1)


def setting(default: Any, text: str, limit: Limit | None = None, **more: Any) -> Any:
    """Return a field of a frozen dataclass with a help text, and a limit of the numbers that it may be.

    There may be `most`, the largest number; `symbol`, what a label calls it; `label`, a function of the value that
    returns how the name of the method tells it; `choices`, a function that returns the names it may be.
    """
    return dataclasses.field(default=default, metadata={"help": text, "limit": limit, **more})


def check(owner: Any, entries: "Iterable[dataclasses.Field[Any]]") -> None:
    """Make fields of a frozen dataclass what their type and their limit say, or refuse them."""
    hints = typing.get_type_hints(type(owner))
    for entry in entries:
        object.__setattr__(owner, entry.name, checked(entry, getattr(owner, entry.name), hints[entry.name]))


def checked(entry: "dataclasses.Field[Any]", value: Any, kind: Any) -> Any:
    """Return the value of one field as its type, so that 1 and 1.0 are one configuration."""
    name, limit = entry.name, entry.metadata["limit"]
    parts = typing.get_args(kind)
    if NoneType in parts:
        if value is None:
            return None
        (kind,) = (part for part in parts if part is not NoneType)
    value = _typed(name, value, kind)
    if limit is not None and not limit.good(value):
        raise ArgumentError(f"{name}={checks.shown(value)}: expected {limit.expected}")
    most = entry.metadata.get("most", {int: MOST, float: MOST_FLOAT}.get(kind))
    if most is not None and value > most:
        raise ArgumentError(f"{name}={checks.shown(value)}: expected at most {most:,}")
    names = choices(entry, kind)
    if names and value not in names:
        raise ArgumentError(f"{name}={value!r}: {nearest(value, names)}")
    return value


def choices(entry: "dataclasses.Field[Any]", kind: Any) -> tuple[str, ...]:
    """Return the names that a field may be; none where it is free."""
    if "choices" in entry.metadata:
        return tuple(entry.metadata["choices"]())
    return typing.get_args(kind) if typing.get_origin(kind) is Literal else ()


def _typed(name: str, value: Any, kind: Any) -> Any:
    if isinstance(value, bool) == (kind is bool):
        if kind is int and isinstance(value, Integral):
            return int(value)
        if kind is float and isinstance(value, Real) and checks.finite(value):
            return float(value)
        if kind not in (int, float) and isinstance(value, bool if kind is bool else str):
            return value
    expected = {int: "an integer", float: "a finite number", bool: "True or False"}.get(kind, "text")
    raise ArgumentError(f"{name}={checks.shown(value)}: expected {expected}")
