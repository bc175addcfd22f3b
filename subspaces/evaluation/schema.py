"""Dataclasses from the values of a JSON file, each checked against its type."""

import dataclasses
from collections.abc import Callable, Iterable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from subspaces.errors import ArgumentError

NUMBERS = {float: (int, float), int: (int,)}
LATER = {"later": True}
"""Metadata of a field that older files do not have: it has its default there."""
Maker = Callable[[Any], Any]


class _MisfitError(Exception):
    """What is wrong with a value, and where it is, which those that hold it complete."""

    def __init__(self, says: str) -> None:
        self.says = says
        self.where = ""

    def within(self, part: str) -> "_MisfitError":
        """Return it as seen from what holds the value as this part."""
        self.where = part + self.where
        return self

    def __str__(self) -> str:
        return f"{self.where.lstrip('.') or 'it'} {self.says}"


def build(kind: Any, value: Any, where: str = "") -> Any:
    """Return what a value of a file stands for; a ValueError names the first that is not of its type."""
    try:
        return _maker(kind)(value)
    except _MisfitError as wrong:
        raise ArgumentError(str(wrong.within(where))) from None


@cache
def _maker(kind: Any) -> Maker:
    """Return the function that makes a value of this type: what the type says is looked up once."""
    origin, inner = _parts(kind)
    if origin in (Union, UnionType):
        return _either(inner)
    if origin is list:
        return _list(inner[0])
    if origin is dict:
        return _dict(inner[1])
    return _dataclass(kind) if dataclasses.is_dataclass(kind) else lambda value: _plain(value, kind)


def _list(kind: Any) -> Maker:
    simple, make = _simple(kind), _maker(kind)

    def several(value: Any) -> Any:
        if not isinstance(value, list):
            raise _not_so(value)
        if simple.issuperset(map(type, value)):  # as most of a file, which is lists of numbers
            return value
        return [each for _, each in _made(make, ((f"[{at}]", each) for at, each in enumerate(value)))]

    return several


def _dict(kind: Any) -> Maker:
    simple, make = _simple(kind), _maker(kind)

    def named(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _not_so(value)
        if simple.issuperset(map(type, value.values())):
            return value
        made = _made(make, ((f".{name}", each) for name, each in value.items()))
        return {part[1:]: each for part, each in made}

    return named


def _made(make: Maker, parts: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, Any]]:
    for part, each in parts:
        try:
            yield part, make(each)
        except _MisfitError as wrong:
            raise wrong.within(part) from None


def _dataclass(kind: Any) -> Maker:
    hints, needed = _hints(kind), _needed(kind)
    makers = {name: (_simple(hint), _maker(hint)) for name, hint in hints.items()}

    def filled(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _not_so(value)
        if not needed <= value.keys():
            raise _MisfitError(f"has no {next(name for name in hints if name in needed and name not in value)!r}")
        made = dict(value)
        for name, (simple, make) in makers.items():
            if name in value and type(value[name]) not in simple:
                try:
                    made[name] = make(value[name])
                except _MisfitError as wrong:
                    raise wrong.within(f".{name}") from None
        return kind(**made)  # which refuses fields that it does not have

    return filled


def _either(kinds: tuple[Any, ...]) -> Maker:
    """Return what makes a value of the first of several types that fits, or tells by which of them it came furthest."""
    simple, makers = frozenset[type]().union(*map(_simple, kinds)), [_maker(kind) for kind in kinds]

    def one(value: Any) -> Any:
        if type(value) in simple:
            return value
        wrong = []
        for make in makers:
            try:
                return make(value)
            except _MisfitError as error:
                wrong.append(error)
        raise max(wrong, key=lambda error: len(str(error)))

    return one


def _plain(value: Any, kind: Any) -> Any:
    """Return a value without parts that is of a type; a float may be written as a whole number."""
    if get_origin(kind) is Literal:
        fits = value in get_args(kind)
    elif kind in NUMBERS:
        fits = isinstance(value, NUMBERS[kind]) and not isinstance(value, bool)
    else:
        fits = kind is Any or (kind in (str, bool, NoneType) and isinstance(value, kind))
    if not fits:
        raise _not_so(value)
    return value


def _not_so(value: Any) -> _MisfitError:
    text = repr(value)
    return _MisfitError(f"is {text if len(text) < 40 else type(value).__name__}")


@cache
def _simple(kind: Any) -> frozenset[type]:
    """Return the types of which a value needs no further look to be of a kind."""
    origin, inner = _parts(kind)
    if origin in (Union, UnionType):
        return frozenset[type]().union(*map(_simple, inner))
    return frozenset(NUMBERS.get(kind, (kind,) if kind in (str, bool, NoneType) else ()))


def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind), get_args(kind)


def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in dataclasses.fields(kind)}


def _needed(kind: Any) -> frozenset[str]:
    """Return the fields that every file has."""
    return frozenset(entry.name for entry in dataclasses.fields(kind) if not entry.metadata.get("later"))
