"""How processes share work: each piece is done once, what another process holds is put off, and a signal stops all.

A lock is a `filelock` of the kernel's: it ends with its process, however that ends. Only a process that holds nothing
waits for another.
"""

import hashlib
import json
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from subspaces.core.storage import sweep
from subspaces.evaluation import files

PAUSE = 0.1  # seconds between two looks at what others do
TRIES = 100  # to lock what others replace or remove
T = TypeVar("T")
R = TypeVar("R")


class Stopped(Exception):  # noqa: N818
    """The work was asked to stop, and what was done is kept."""


class Stop:
    """Says whether a signal has asked to stop."""

    signal: int | None = None

    def raise_if_stopped(self) -> None:
        """Stop if that was asked for."""
        if self.signal is not None:
            raise Stopped(signal.Signals(self.signal).name)


@contextmanager
def stop_on_signals(patient: bool = False) -> Iterator[Stop]:
    """Turn Ctrl-C and SIGTERM into a request; a second one acts at once.

    `patient`: it does not, for those who are asked again and again, as torchrun and Ray do.
    """
    stop = Stop()
    previous: dict[int, Any] = {}

    def request(number: int, frame: object) -> None:
        stop.signal = number
        for known, handler in previous.items() if not patient else ():
            signal.signal(known, handler)

    try:
        with suppress(ValueError):  # not in the main thread: signals are someone else's business
            for wanted in (signal.SIGINT, signal.SIGTERM):
                previous[wanted] = signal.signal(wanted, request)
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


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
    with suppress(FileNotFoundError, NotADirectoryError):  # asked once: another process may remove it at any moment
        if not stat.S_ISREG(path.lstat().st_mode):
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


def wait(held: Mapping[str, str], doing: str, told: set[str], stop: Stop) -> None:
    """Wait for a moment while others hold pieces, by their name, and say so once for each process."""
    for name, holder in held.items():
        if "?" in holder and name not in told:  # it is about to write its name, or to let go
            told.add(name)
        elif holder not in told:
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
    stop: Stop,
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


class Kept:
    """A JSON file of numbers with the keys of what was measured, which several processes may read and add to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, key: Mapping[str, Any]) -> Any:
        """Return what was measured of a key; None if nothing was."""
        return next((value for found, value in self.items() if found == key), None)

    def add(self, key: Mapping[str, Any], value: Any) -> None:
        """Add an entry, in place of an earlier one with the same key."""
        lock = self.path.with_name(f".{self.path.name}.lock")
        with attempt(lock, keep=False, wait=True):  # or what others add meanwhile would be lost
            entries = [*(each for each in self.items() if each[0] != key), (dict(key), value)]
            files.write_json(self.path, {"measured": [{"key": each, "value": kept} for each, kept in entries]})

    def items(self) -> list[tuple[dict[str, Any], Any]]:
        """Return all keys, and what was measured of them."""
        if not self.path.exists():
            return []
        found = files.read_json(self.path, "remove it, and it is measured again")
        return [(each["key"], each["value"]) for each in found["measured"]]
