"""What a caller passed, checked: an error says what it was and what was expected."""

import os
from collections.abc import Callable, Iterable
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def whole(name: str, value: Any, least: int, most: int | None = None, beside: str = "") -> int:
    """Return a whole number within its limits; True and False are none."""
    integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not integer or value < least or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"at least {least} and at most {most}"
        raise ValueError(f"{name}={shown(value)}: expected {'' if integer else 'an integer of '}{limits}{beside}")
    return int(value)


def folder(name: str, value: Any) -> Path:
    """Return the path of a folder or file that was passed as text or as a path."""
    if not isinstance(value, (str, os.PathLike)) or "\0" in str(value):
        raise TypeError(f"{name}={shown(value)}: expected the path of a folder, such as 'runs' or Path('runs')")
    return Path(value)


def several(value: Any, one: type | tuple[type, ...], expected: str) -> list[Any]:
    """Return one thing, or all of several, as a list; `expected` says what they are."""
    found = [value] if isinstance(value, one) else list(value) if isinstance(value, Iterable) else [value]
    wrong = [each for each in found if not isinstance(each, one)]
    if wrong or isinstance(value, (bytes, dict)):
        raise TypeError(f"got {shown(wrong[0] if wrong else value)}: expected {expected}")
    if not found:
        raise ValueError(f"got none: expected {expected}")
    return found


def numbers(name: str, value: Any, check: Callable[[Any], T], expected: str) -> list[T]:
    """Return numbers, each of them checked; one alone, text and nothing at all are refused."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ValueError(f"{name}={shown(value)}: expected {expected}")
    return [check(each) for each in value]


def shown(value: Any) -> str:
    """Return a value as Python writes it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
