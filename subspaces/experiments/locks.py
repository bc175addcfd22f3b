"""Locks between processes, and folders that are made for a result."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from subspaces.core.files import TRIES, sweep


def this_process() -> str:
    """Return what `attempt` calls this process."""
    return f"process {os.getpid()}"


@contextmanager
def attempt(path: Path, keep: bool = True) -> Iterator[str | None]:
    """Lock a file if no other process has it locked, and yield None, or else the name of that process.

    The folder is made if need be. The lock ends with the process, however that ends; with `keep=False` the file is
    removed at the end.
    """
    lock = _acquired(path, blocking=False)
    if lock is None:
        yield _holder(path)
        return
    try:
        with suppress(OSError):  # a full disk; the lock holds nevertheless
            path.write_text(f"{os.getpid()} {socket.gethostname()}")
        yield None
    finally:
        with suppress(OSError):
            os.truncate(path, 0) if keep else path.unlink()
        lock.release()


@contextmanager
def waited(path: Path) -> Iterator[None]:
    """Lock a file, after other processes if need be, and remove it at the end."""
    lock = _acquired(path, blocking=True)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        if lock is not None:
            lock.release()


def _acquired(path: Path, blocking: bool) -> FileLock | None:
    """Return the lock of a file, or None if another process has it and it is not waited for."""
    for tries in range(TRIES):
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise OSError(f"{path} is a link or no file: expected a lock that is made here; remove it")
        try:
            lock = FileLock(path)
            lock.acquire(blocking=blocking, poll_interval=0.01)
            return lock
        except Timeout:
            return None
        except FileNotFoundError:  # another process has just removed the folder
            if tries == TRIES - 1:
                raise
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
                advice = "change its permissions, or work with a copy"
                raise OSError(f"{path.parent} cannot be written to ({error.strerror}): {advice}") from None
            raise OSError(f"{path} cannot be locked ({error.strerror}): choose a folder on another disk") from None
    return None


def _holder(path: Path) -> str:
    """Return the name of the process that has written into a lock file."""
    try:
        number, _, host = path.read_bytes()[:200].decode(errors="replace").partition(" ")
    except OSError:
        number = host = ""
    elsewhere = f" on {host}" if host not in ("", socket.gethostname()) else ""
    return f"process {number or '?'}{elsewhere}"


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
