"""A disk that fails: the process ends, or the disk is full, at the k-th thing that is written in its folder."""

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

CODE = 77


def ways(operation: str) -> list[str]:
    """Return the ways in which an operation may fail."""
    found = ["before", "after", "power"]
    found += ["in the middle"] * (operation == "write")
    return found + ["full"] * (operation in ("open", "write", "fsync", "mkdir"))


class Disk:
    """Counts what is written below a folder, and fails at one moment.

    before, after: the process ends there, and what was not flushed is lost.
    in the middle: half of what is written reaches the file.
    power: with the process goes all that was not on the disk (`fsync`).
    full: an error, as the system raises it.
    """

    def __init__(self, folder: Path, fail_at: int = -1, way: str = "before", journal: Path | None = None) -> None:
        self.folder = str(folder.resolve())
        self.fail_at = fail_at
        self.way = way
        self.journal = journal
        self.count = 0
        self.unsafe: dict[int, tuple[int, int]] = {}  # file -> a handle of it, and its length on the disk
        self.open = io.open

    def install(self) -> None:
        """Take the place of the functions through which files are written, in this process."""
        for name in ("replace", "rename", "unlink", "remove", "truncate", "mkdir", "rmdir", "fsync"):
            setattr(os, name, self._watched(name, getattr(os, name)))
        builtins.open = io.open = self._open

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *rest: Any, **options: Any) -> Any:
            where = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.path.abspath(path)
            done = self.event(name, where, lambda: real(path, *rest, **options))
            if name == "fsync":
                self.unsafe.pop(os.fstat(path).st_ino, None)
            return done

        return call

    def _open(self, file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        where = "" if isinstance(file, int) else os.path.abspath(file)
        if not set(mode) & set("wxa+") or not self._ours(where):
            return self.open(file, mode, *rest, **options)
        there = os.path.getsize(where) if os.path.isfile(where) and "w" not in mode else 0
        opened = self.event("open", where, lambda: self.open(file, mode, *rest, **options))
        number = os.fstat(opened.fileno()).st_ino
        if number not in self.unsafe:
            self.unsafe[number] = (os.dup(opened.fileno()), there)
        return _File(opened, self, where)

    def _ours(self, where: str) -> bool:
        return where.startswith(self.folder)

    def event(self, name: str, where: str, do: Callable[[], Any], half: Callable[[], None] | None = None) -> Any:
        """Do something to a file, or fail."""
        if not self._ours(where):
            return do()
        self.count += 1
        if self.journal is not None:
            with self.open(self.journal, "a") as file:
                file.write(f"{name} {os.path.relpath(where, self.folder)}\n")
        if self.count != self.fail_at:
            return do()
        if self.way == "full":
            named = () if name in ("write", "fsync") else (where,)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *named)
        if self.way == "in the middle" and half is not None:
            half()
        if self.way in ("after", "power"):
            do()
        if self.way == "power":
            for handle, length in self.unsafe.values():
                os.ftruncate(handle, min(length, os.fstat(handle).st_size))
        os._exit(CODE)


class _File:
    """A file that tells the disk what is written to it."""

    def __init__(self, file: Any, disk: Disk, where: str) -> None:
        self._file, self._disk, self._where = file, disk, where

    def write(self, content: Any) -> Any:
        return self._disk.event("write", self._where, lambda: self._file.write(content), lambda: self._half(content))

    def _half(self, content: Any) -> None:
        self._file.write(content[: len(content) // 2])
        self._file.flush()

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()

    def __iter__(self) -> Any:
        return iter(self._file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
