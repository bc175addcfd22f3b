"""What a caller passed, checked: an error says what it was and what was expected."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

from subspaces.errors import ArgumentError
from subspaces.text import shown as shown  # noqa: PLC0414 (for its callers)


def whole(name: str, value: Any, least: int, most: int | None = None, beside: str = "") -> int:
    """Return a whole number within its limits; True and False are none."""
    if not integer(value) or value < least or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"at least {least} and at most {most}"
        raise ArgumentError(
            f"{name}={shown(value)}: expected {'' if integer(value) else 'an integer of '}{limits}{beside}"
        )
    return int(value)


def number(name: str, value: Any) -> float:
    """Return a finite number; True, False and text are none."""
    try:
        found = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        found = math.nan
    if not math.isfinite(found):
        raise ArgumentError(f"{name}={shown(value)}: expected a finite number")
    return found


def flag(name: str, value: Any) -> bool:
    """Return True or False; nothing else is taken for one of them, not even a number."""
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}={shown(value)}: expected True or False")
    return value


def integer(value: Any) -> bool:
    """Say whether a value is a whole number, of numpy too; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def finite(value: Any) -> bool:
    """Say whether a number is finite as a float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def folder(name: str, value: Any) -> Path:
    """Return the path of a folder or file that was passed as text or as a path."""
    if not isinstance(value, (str, os.PathLike)) or "\0" in str(value):
        raise ArgumentError(f"{name}={shown(value)}: expected a path, such as 'runs' or Path('runs')")
    return Path(value)


def several(name: str, value: Any, expected: str, most: int | None = None) -> list[Any]:
    """Return the members of a list or the like; text, a dict and a thing alone are none."""
    if not listed(value):
        raise ArgumentError(f"{name}={shown(value)}: expected {expected}")
    found = list(value)
    if most is not None and len(found) > most:
        raise ArgumentError(f"{name} has {len(found):,} members: expected at most {most:,}")
    return found


def all_of(name: str, value: Any, kinds: tuple[type, ...], expected: str) -> list[Any]:
    """Return one thing of these kinds, or each of several, as a list; `expected` says what they are."""
    found = [value] if isinstance(value, kinds) or not listed(value) else list(value)
    for each in found:
        if not isinstance(each, kinds):
            raise ArgumentError(f"{name} got {shown(each)}: expected {expected}")
    if not found:
        raise ArgumentError(f"{name} got nothing: expected {expected}")
    return found


def function(name: str, value: Any, expected: str) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise ArgumentError(f"{name}={shown(value)}: expected {expected}")


def batches(name: str, loader: Any, *, again: bool = True) -> Iterable[Any]:
    """Return what yields batches, and if `again` does so as often as it is asked."""
    if not isinstance(loader, Iterable) or isinstance(loader, (str, bytes, Mapping)) or hasattr(loader, "ndim"):
        raise ArgumentError(
            f"{name}={shown(loader)}: expected something that yields batches, such as a DataLoader, or a list of them"
        )
    if again and isinstance(loader, Iterator):
        raise ArgumentError(f"{name}={shown(loader)}: expected batches that can be walked over again")
    return loader


def listed(value: Any) -> bool:
    """Say whether a value is a list or the like; text and a dict are not meant as one."""
    alone = isinstance(value, (str, bytes, Mapping)) or getattr(value, "ndim", 1) == 0  # or a tensor of one number
    return isinstance(value, Iterable) and not alone
