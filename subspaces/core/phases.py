"""Where the time of a command goes: import, data, capture, training, evaluation, writing."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

Phase = Literal["import", "data", "building", "compile", "capture", "training", "evaluation", "writing"]
MEANING: dict[Phase, str] = {
    "import": "from the start of the process to that of the command",
    "data": "reading data sets",
    "building": "networks, optimisers, and images on the device",
    "compile": "compiling steps, on a GPU",
    "capture": "recording steps as CUDA graphs, and choosing kernels",
    "training": "steps, and waiting for the device",
    "evaluation": "statistics of batch norms, and predictions",
    "writing": "files: checkpoints, families, records",
}


class Timings:
    """Seconds by phase; a phase within another counts for itself alone."""

    def __init__(self) -> None:
        self.seconds: dict[Phase, float] = {}
        self._open: list[tuple[Phase, float]] = []  # and since when its time is not counted yet

    def enter(self, name: Phase) -> None:
        """Begin a phase, and let the one around it wait."""
        now = time.perf_counter()
        self._count(now)
        self._open.append((name, now))

    def leave(self) -> None:
        """End the innermost phase, and go on with the one around it."""
        now = time.perf_counter()
        self._count(now)
        self._open.pop()
        if self._open:
            self._open[-1] = (self._open[-1][0], now)

    def _count(self, now: float) -> None:
        if self._open:
            name, since = self._open[-1]
            self.add(name, now - since)

    def add(self, name: Phase, seconds: float) -> None:
        """Count seconds for a phase."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def move(self, source: Phase, target: Phase, seconds: float) -> None:
        """Count seconds of one phase for another."""
        moved = min(seconds, self.seconds.get(source, 0.0))
        self.add(source, -moved)
        self.add(target, moved)

    def shares(self, total: float) -> list[tuple[str, float]]:
        """Return the seconds of every phase in their order, and what is left of so many."""
        found: list[tuple[str, float]] = [(name, self.seconds[name]) for name in MEANING if self.seconds.get(name)]
        return [*found, ("other", max(0.0, total - sum(seconds for _, seconds in found)))]


_current: list[Timings] = []  # of this process: one, or none if nobody asked


@contextmanager
def measured() -> Iterator[Timings]:
    """Measure phases while this lasts."""
    timings = Timings()
    _current.append(timings)
    try:
        yield timings
    finally:
        _current.remove(timings)


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Count the time of this as that of a phase, if anybody wants to know; also a decorator."""
    if not _current:
        yield
        return
    timings = _current[-1]
    timings.enter(name)
    try:
        yield
    finally:
        timings.leave()


def since_start() -> float:
    """Return how long this process has been running, in seconds; 0 where the system does not tell."""
    try:
        with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
            return max(0.0, float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return 0.0
