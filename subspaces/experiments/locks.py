"""How processes share work: each piece is done once, and what another process holds is put off.

A lock is a `filelock` of the kernel's: it ends with its process, however that ends. Only a process that holds nothing
waits for another.
"""

import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock, Timeout

from subspaces.core.storage import sweep

if TYPE_CHECKING:
    from subspaces.experiments.training.signals import Stop

PAUSE = 0.1  # seconds between two looks at what others do
TRIES = 100  # to lock what others replace or remove
T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def attempt(path: Path, keep: bool = True, wait: bool = False) -> Iterator[str | None]:
    """Lock a file if no other process has it locked, and yield None, or else the name of that process.

    The folder is made if need be; with `keep=False` the file is removed at the end. With `wait` it is locked after the
    other process.
    """
    lock = _acquired(path, blocking=wait)
    if lock is None:
        yield _holder(path)
        return
    try:
        with suppress(OSError):  # a full disk; the lock holds nevertheless
            path.write_text(f"{os.getpid()} {socket.gethostname()}")
        yield None
    finally:
        with suppress(OSError):
            os.truncate(path, 0) if keep else path.unlink()  # the next must not be taken for this process
        lock.release()


def beside(path: Path, key: Any) -> AbstractContextManager[str | None]:
    """Lock what goes into a file under a key, with a hidden file beside it; see `attempt`."""
    mark = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return attempt(path.with_name(f".{path.name}.{mark}.lock"), keep=False)


def _acquired(path: Path, blocking: bool) -> FileLock | None:
    """Return the lock of a file, or None if another process has it and it is not waited for."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OSError(f"{path} is a link or no file: expected a lock that is made here; remove it")
    lock = FileLock(path)
    for left in reversed(range(TRIES)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(blocking=blocking, poll_interval=0.01)
            return lock
        except Timeout:
            return None
        except OSError as error:
            if isinstance(error, FileNotFoundError) and left:  # another process has just removed the folder
                continue
            advice = "change its permissions, work with a copy, or choose a folder on another disk"
            raise OSError(f"{path.parent} cannot be written to ({error.strerror}): {advice}") from None
    return None


def _holder(path: Path) -> str:
    """Return the name of the process that has written into a lock file."""
    number = host = ""
    with suppress(OSError):
        number, _, host = path.read_bytes()[:200].decode(errors="replace").partition(" ")
    elsewhere = f" on {host}" if host not in ("", socket.gethostname()) else ""
    return f"process {number or '?'}{elsewhere}"


def wait(held: Mapping[str, str], doing: str, told: set[str], stop: "Stop") -> None:
    """Wait for a moment while others hold pieces, by their name, and say so once for each process."""
    for name, holder in held.items():
        if holder not in told:
            told.add(holder)
            sys.stderr.write(f"waiting for {name}, which {holder} is {doing}\n")
            sys.stderr.flush()
    time.sleep(PAUSE)
    stop.raise_if_stopped()


def share(
    pieces: Sequence[T],
    attempt: Callable[[T], AbstractContextManager[str | None]],
    work: Callable[[T], R],
    named: Callable[[T], str],
    stop: "Stop",
) -> list[R]:
    """Do all pieces, first those that nobody holds, and return what came of each, in their order.

    `attempt` holds a piece, or gives who does. One that another process has done is done again, and finds all there.
    """
    told = set[str]()
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
            wait({named(piece): holder for piece, holder in held.items()}, "working on", told, stop)
        left = list(held)
    return [done[piece] for piece in pieces]


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder, or sweep one that is there; at the end remove what was made here and is still empty."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # whoever needs the folder reports what is wrong with it
            sweep(folder)
        yield
    finally:
        for each in new:
            with suppress(OSError):
                each.rmdir()
