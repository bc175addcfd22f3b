"""How several processes do the same work together: each piece is done once, by the first that comes to it.

A piece has a lock, which is tried and never waited for: what another process holds is put off. Only one that holds
nothing waits, until the other has done the piece or is no more.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from subspaces.experiments import locks
from subspaces.experiments.training.signals import Stop

PAUSE = 0.1  # seconds between two looks at what others do

T = TypeVar("T")
R = TypeVar("R")


class Waiting:
    """Waits for other processes, and says so, once for each of them; `doing` is what they do with a piece."""

    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.told: set[str] = set()

    def __call__(self, held: Mapping[str, str], stop: Stop) -> None:
        """Wait for a moment while pieces, by their name, are held by others; stop if that was asked for."""
        for name, holder in held.items():
            if holder not in self.told:
                self.told.add(holder)
                sys.stderr.write(f"waiting for {name}, which {holder} is {self.doing}\n")
                sys.stderr.flush()
        time.sleep(PAUSE)
        stop.heed()


def share(
    pieces: Sequence[T],
    attempt: Callable[[T], AbstractContextManager[str | None]],
    work: Callable[[T], R],
    named: Callable[[T], str],
    stop: Stop,
) -> list[R]:
    """Do all pieces, first those that nobody holds, and return what came of each, in their order.

    Args:
        pieces: what is to be done; one that another process has done is done again, and finds everything there.
        attempt: holds a piece and gives None, or gives who holds it.
        work: does one.
        named: what a person calls one.
        stop: asks to stop while others are waited for.
    """
    wait = Waiting("working on")
    done: dict[T, R] = {}
    left = list(pieces)
    while left:
        held: dict[T, str] = {}
        for piece in left:
            with attempt(piece) as holder:
                if holder is None:
                    done[piece] = work(piece)
                else:
                    held[piece] = holder
        if len(held) == len(left):
            wait({named(piece): holder for piece, holder in held.items()}, stop)
        left = list(held)
    return [done[piece] for piece in pieces]


@contextmanager
def beside(path: Path, key: Any) -> Iterator[str | None]:
    """Hold what goes into a file under a key, by a hidden lock beside the file, and yield None, or else who does."""
    mark = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    with locks.attempt(path.with_name(f".{path.name}.{mark}.lock"), keep=False) as holder:
        yield holder
