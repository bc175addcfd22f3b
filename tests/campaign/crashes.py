"""Crashes at every write and kills at any moment: the same command then ends where an undisturbed one does.

The process dies, loses power or finds the disk full.
"""

import builtins
import errno
import io
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from campaign import children, judge, scenes
from campaign.children import Ended
from campaign.judge import Outcome
from campaign.scenes import Command, Scene

CODE = 77
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SEVERAL = ("train", "digits-standard", "digits-line", *scenes.COMMON, *scenes.OFTEN, "--epochs", "3")


@dataclass
class Disk:
    """Counts what is written below a folder, and fails at one moment.

    before, after: the process ends there, and what was not flushed is lost.
    in the middle: half of what is written reaches the file.
    power: with the process goes all that was not on the disk (`fsync`).
    full: an error, as the system raises it.
    """

    folder: Path
    fail_at: int = -1
    way: str = "before"
    journal: Path | None = None
    count: int = 0
    unsafe: dict[int, tuple[int, int]] = field(default_factory=dict)  # file -> a handle of it, its length on the disk
    open: Callable[..., Any] = io.open

    def install(self) -> None:
        """Take the place of the functions through which files are written, in this process."""
        for name in ("replace", "rename", "unlink", "remove", "truncate", "mkdir", "rmdir", "fsync"):
            setattr(os, name, partial(self._call, name, getattr(os, name)))
        builtins.open = io.open = self._open

    def _call(self, name: str, real: Callable[..., Any], path: Any, *rest: Any, **options: Any) -> Any:
        where = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.path.abspath(path)
        done = self.event(name, where, lambda: real(path, *rest, **options))
        if name == "fsync":
            self.unsafe.pop(os.fstat(path).st_ino, None)
        return done

    def _open(self, file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        where = "" if isinstance(file, int) else os.path.abspath(file)
        if not set(mode) & set("wxa+") or not where.startswith(str(self.folder)):
            return self.open(file, mode, *rest, **options)
        there = os.path.getsize(where) if os.path.isfile(where) and "w" not in mode else 0
        opened = self.event("open", where, lambda: self.open(file, mode, *rest, **options))
        number = os.fstat(opened.fileno()).st_ino
        if number not in self.unsafe:
            self.unsafe[number] = (os.dup(opened.fileno()), there)
        return _File(opened, self, where)

    def event(self, name: str, where: str, do: Callable[[], Any], half: Callable[[], None] | None = None) -> Any:
        """Do something to a file, or fail."""
        if not where.startswith(str(self.folder)):
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


def _ways(operation: str) -> list[str]:
    found = ["before", "after", "power"] + ["in the middle"] * (operation == "write")
    return found + ["full"] * (operation in ("open", "write", "fsync", "mkdir"))


class Crashes:
    """The cases of crashed commands: those that write a run, an evaluation, a figure and a page."""

    def __init__(self, made: dict[str, Scene], base: Path) -> None:
        train = Command((*scenes.TRAIN, *scenes.OFTEN), scenes.of_whole_training)
        evaluated = {one.argv[0]: one for one in reversed(made["evaluated"].commands)}
        self.commands: list[tuple[Command, Scene | None, str]] = [
            (train, None, ""),
            (train, made["interrupted"], ""),
            (evaluated["evaluate"], made["evaluated"], "evaluation*"),
            (evaluated["report"], made["evaluated"], ""),
        ]
        self.expected: list[Any] = []
        self.cases: list[tuple[int, int, str, str]] = []  # command, number of the write, what it is, how it fails
        for at, (command, _, _) in enumerate(self.commands):
            folder, journal = self._begin(at, base / f"journaled-{at}"), base / f"journal-{at}"
            ended = scenes.run(command.argv, folder, first=Disk(folder, journal=journal).install)
            self.expected.append(command.read(folder, ended.out))
            writes = enumerate(journal.read_text().splitlines(), 1)
            self.cases += [(at, k, what, way) for k, what in writes for way in _ways(what.split()[0])]
        random.Random(0).shuffle(self.cases)  # as many as are asked for, and each once before one comes again

    def _begin(self, at: int, folder: Path) -> Path:
        _, scene, without = self.commands[at]
        folder.mkdir() if scene is None else scene.copy(folder, without)
        return folder

    def run(self, index: int, chance: random.Random, folder: Path, plant: Callable[[], None] = lambda: None) -> Outcome:
        """Crash a command at one of its writes, let it run again, and look at what it leaves."""
        at, k, what, way = self.cases[index % len(self.cases)]
        command = self.commands[at][0]
        disk = Disk(self._begin(at, folder), k, way)
        ended = children.command(command.argv, folder, first=lambda: (plant(), disk.install()))
        bad = "" if ended.code == CODE else _unclear(ended, Path(what.split()[1]))
        last = children.command(command.argv, folder)
        bad = bad or command.finished(last, [self.expected[at]], folder)
        return Outcome(f"{' '.join(command.argv)}; {way} at write {k}, {what}; then once more", "recovered", bad)


def _unclear(ended: Ended, path: Path) -> str:
    """Return what is wrong with a command that found the disk full; some can do without the file."""
    if wrong := judge.crashed(ended):
        return wrong
    name = path.name.removeprefix(".").split(".")[0]  # of a partial file, too
    return "" if ended.code == 0 else judge.unclear(ended, {name, str(path.parent), path.parent.name} - {"", "."})


class Kills:
    """The cases of killed commands: training, evaluating, comparing."""

    def __init__(self, made: dict[str, Scene], base: Path) -> None:
        often = Command((*scenes.TRAIN, *scenes.OFTEN), scenes.of_whole_training)
        evaluate = next(one for one in made["evaluated"].commands if one.argv[0] == "evaluate")
        self.cases: list[tuple[Command, Scene | None, str]] = [  # from which scene, without which of its files
            (Command(SEVERAL, scenes.of_whole_training), None, ""),
            (often, made["interrupted"], ""),
            (evaluate, made["evaluated"], "evaluation*"),
        ]
        self.expected = []
        for number, (command, scene, without) in enumerate(self.cases):
            folder, begin = base / f"undisturbed-{number}", time.monotonic()
            if scene is not None and scene.name != "interrupted":
                scene.copy(folder, without)
            out = scenes.run(command.argv, folder).out
            self.expected.append((command.read(folder, out), time.monotonic() - begin))

    def run(self, index: int, chance: random.Random, folder: Path) -> Outcome:
        """Kill a command one to three times, let it finish, and look at what it leaves."""
        at = index % len(self.cases)
        (command, scene, without), (expected, seconds) = self.cases[at], self.expected[at]
        folder.mkdir() if scene is None else scene.copy(folder, without)
        done, bad = [], ""
        for _ in range(chance.randint(1, 3)):
            number, after = kill = chance.choice(SIGNALS), chance.uniform(0, 1.1 * seconds)
            done.append(f"{signal.Signals(number).name} after {after:.3f} s")
            bad = bad or _untidy(children.command(command.argv, folder, kill=kill), number)
        times = 1 + (chance.random() < 0.2)  # two processes finish it together
        for last in children.together([command.argv] * times, folder):
            bad = bad or command.finished(last, [expected], folder)
        return Outcome(f"{' '.join(command.argv)}; {', '.join(done)}; then {times} at once", "recovered", bad)


def _untidy(ended: Ended, number: int) -> str:
    """Return what is wrong with the way a command was stopped."""
    if ended.code in (0, -number):  # it was done already, or had not begun
        return ""
    if ended.code != 128 + number:
        return judge.crashed(ended) or f"exit code {ended.code} after signal {number}: {' / '.join(ended.lines[:2])}"
    return f"{len(ended.lines)} lines after signal {number}: {ended.err[-300:]}" if len(ended.lines) > 1 else ""
