"""Words: the nearest name, lists, and things that are found by their name."""

import difflib
import html
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from subspaces.errors import ArgumentError


class Named(Protocol):
    """Anything that has a name."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


def shown(value: Any) -> str:
    """Return a value as Python writes it, cut where it is long."""
    try:
        text = repr(value)
    except Exception:  # of an object whose own text fails, or of an endless number
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}…"


def nearest(name: object, names: Iterable[str]) -> str:
    """Return a hint that names the closest of `names`, and a few of them if none is close."""
    known = list(names)
    close = closest(name, known)
    if close is not None:
        return f"did you mean {close!r}?"
    return f"expected one of {', '.join(map(repr, known[:8]))}{', …' if len(known) > 8 else ''}"


def closest(name: object, names: Iterable[str]) -> str | None:
    """Return the one of `names` that was probably meant; None if none is close."""
    spelled = {each.lower(): each for each in names}
    close = difflib.get_close_matches((name if isinstance(name, str) else shown(name)).lower(), spelled, n=1)
    return spelled[close[0]] if close else None


def one_of(name: str, value: Any, names: Iterable[str]) -> str:
    """Return a name that was passed, if it is one of these."""
    known = list(names)
    if not isinstance(value, str) or value not in known:
        raise ArgumentError(f"{name}={shown(value)}: {nearest(value, known)}")
    return value


def hint(name: object, names: Iterable[str]) -> str:
    """Return the closest of `names` as a question in brackets, or nothing if none is close."""
    close = closest(name, names)
    return "" if close is None else f" (did you mean {close!r}?)"


def listed(words: Iterable[str]) -> str:
    """Return words as one says them: a, b and c."""
    *first, last = list(words) or [""]
    return f"{', '.join(first)} and {last}" if first else last


def printable(text: str) -> str:
    """Return text with an escape in place of every character that does not print, such as those a terminal obeys."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def markdown(text: str) -> str:
    """Return text as a line of Markdown that shows it as it is, with nothing of it as Markdown, HTML or a link."""
    line = printable(re.sub(r"\s+", " ", text))
    escaped = re.sub(r"[\\`*_\[\]|~]", r"\\\g<0>", html.escape(line, quote=False))
    return re.sub(r"://|www\.", lambda found: f"{found[0][:-1]}&#{ord(found[0][-1])};", escaped)


class Catalogue(Mapping[str, T], Generic[T]):
    """Things of one kind (as errors call them) by their name, in the order in which they were added by anybody."""

    def __init__(self, kind: str, things: Iterable[T] = ()) -> None:
        self.kind = kind
        self._things: dict[str, T] = {}
        for thing in things:
            self.add(thing)

    def add(self, thing: T) -> T:
        """Add a thing and return it; another one of that name is refused."""
        if self._things.setdefault(thing.name, thing) is not thing:
            raise ArgumentError(f"another {self.kind} is called {thing.name!r} already: expected another name")
        return thing

    def remove(self, name: str) -> None:
        """Take a thing out again."""
        del self._things[name]

    def find(self, name: object) -> T:
        """Return the thing of that name, or say which one may have been meant."""
        if not isinstance(name, str) or name not in self._things:
            raise ArgumentError(f"unknown {self.kind} {shown(name)}: {nearest(name, self._things)}")
        return self._things[name]

    def __getitem__(self, name: str) -> T:
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)
