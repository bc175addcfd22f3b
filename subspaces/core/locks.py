"""Files that one process holds at a time; what is held is free again when the process ends, however it ends."""

import errno
import importlib
import io
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

_FAR = 1 << 30  # what Windows locks cannot be read, so a byte is locked that nobody reads
_PAUSE = 0.01
_held: set[tuple[int, int, int]] = set()  # by this process, which is part of it: a fork holds nothing


def _module(name: str) -> Any:
    """Return a module that not every system has, or None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


fcntl, msvcrt = _module("fcntl"), _module("msvcrt")


class Holder(NamedTuple):
    """The process that holds a lock, in words, and whether it is this one."""

    name: str
    ours: bool


def hold(file: int) -> bool:
    """Lock an open file until it is closed, and say whether that was possible.

    Where a system knows neither of the two ways to do it, nobody is kept out.
    """
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif msvcrt is not None:
            os.lseek(file, _FAR, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


@contextmanager
def attempt(path: Path, keep: bool = True) -> Iterator[Holder | None]:
    """Hold a lock file if no other process does, and yield None, or else who does; its folder is made if need be.

    With `keep=False` the file is removed at the end.
    """
    while True:
        with _opened(path) as file:
            if not _got(path, file):
                yield _holder(file)
                return
            if not _there(path, file):  # another process has removed it before it let go of it
                continue
            mine = _identity(file)
            _held.add(mine)
            try:
                _sign(file)
                yield None
            finally:
                _held.discard(mine)
                if not keep:
                    with suppress(OSError):
                        path.unlink()
            return


@contextmanager
def waited(path: Path) -> Iterator[None]:
    """Hold a lock file that every process holds only for moments, and leave none behind."""
    while True:
        with attempt(path, keep=False) as holder:
            if holder is None:
                yield
                return
        time.sleep(_PAUSE)


def _opened(path: Path) -> io.FileIO:
    """Open a lock file, which may be new; a link is not followed."""
    flags = os.O_RDWR | os.O_CREAT
    for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):
        flags |= getattr(os, name, 0)
    for last in (*(False,) * 99, True):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, flags, 0o666)
            break
        except FileNotFoundError:  # a process that had no use for the folder has just removed it
            if last:
                raise
        except OSError as error:
            if error.errno == errno.ELOOP or path.is_symlink():
                raise OSError(f"{path} is a symbolic link: expected a file of its own; remove it") from None
            raise OSError(
                f"{path.parent} cannot be written to ({error.strerror}): change its permissions, or work with a copy"
            ) from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is not a file: expected one that is made here; remove it")
    return io.FileIO(file, "r+b")


def _got(path: Path, file: io.FileIO) -> bool:
    """Hold a file, and name it where that is impossible."""
    try:
        return hold(file.fileno())
    except OSError as error:
        raise OSError(f"{path} cannot be locked ({error.strerror}): choose a folder on another disk") from None


def _sign(file: io.FileIO) -> None:
    """Write who we are, for those who wait; a file that has a second name elsewhere is not ours to write."""
    with suppress(OSError):  # a full disk; the lock holds nevertheless
        if os.fstat(file.fileno()).st_nlink == 1:
            file.truncate(0)
            file.seek(0)
            file.write(f"{os.getpid()} {socket.gethostname()}".encode())


def _identity(file: io.FileIO) -> tuple[int, int, int]:
    found = os.fstat(file.fileno())
    return os.getpid(), found.st_dev, found.st_ino


def _there(path: Path, file: io.FileIO) -> bool:
    """Say whether an open file still is the one of that name."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _holder(file: io.FileIO) -> Holder:
    """Return who wrote its number into a lock file."""
    file.seek(0)
    number, _, host = file.read(200).decode(errors="replace").partition(" ")
    elsewhere = f" on {host}" if host not in ("", socket.gethostname()) else ""
    return Holder(f"process {number or '?'}{elsewhere}", _identity(file) in _held)
