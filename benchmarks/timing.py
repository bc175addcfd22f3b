"""Times of things that take turns in one process, and a record that is written and printed as it grows."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from subspaces.evaluation.files import write_plain_json

Run = Callable[[int], int]
"""Makes at least so many steps, and returns how many."""
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
"""What time is: that on the wall, or what this process had of a processor, where others want it too."""
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")  # where the compiler finds what it has compiled before


@dataclass(frozen=True)
class Pace:
    """How often variants take turns, with how many steps at a time, on which device, and by which clock."""

    rounds: int
    steps: int
    device: str
    clock: Callable[[], float] = time.perf_counter

    def wait(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def seconds(self, work: Callable[[], Any]) -> float:
        """Return how long some work takes, on the device too."""
        self.wait()
        start = self.clock()
        work()
        self.wait()
        return self.clock() - start

    def milliseconds(self, run: Run) -> float:
        """Return those of a step."""
        taken = 0

        def work() -> None:
            nonlocal taken
            taken = run(self.steps)

        seconds = self.seconds(work)
        return 1000 * seconds / taken

    def in_turns(self, *runs: Run) -> list[list[float]]:
        """Return milliseconds per step of each, by round; one more round warms them up."""
        rounds = [[self.milliseconds(run) for run in runs] for _ in range(self.rounds + 1)]
        return [list(each) for each in zip(*rounds[1:], strict=True)]


def compared(times: Sequence[float], others: Sequence[float]) -> dict[str, Any]:
    """Return the median time, and the median and the quartiles of its ratios to another's, round by round."""
    ratios = [mine / other for mine, other in zip(times, others, strict=True)]
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {"ms": median(times), "ratio": median(ratios), "quartiles": [low, high]}


class Record:
    """What is known so far, in a file that is whole at any time, and a line of it for whoever waits."""

    def __init__(self, path: Path | None, **known: Any) -> None:
        self.path = path
        self.content: dict[str, Any] = {"command": command(), **known}

    def add(self, line: str, value: Any, *names: str) -> None:
        """Print a line, and write the value under its names, one within the other."""
        print(line, flush=True)
        place = self.content
        for name in names[:-1]:
            place = place.setdefault(name, {})
        place[names[-1]] = value
        if self.path is not None:
            write_plain_json(self.path, self.content)


def command() -> str:
    """Return what was called, with the number of threads if that was set."""
    threads = [f"OMP_NUM_THREADS={found}"] if (found := os.environ.get("OMP_NUM_THREADS")) else []
    return " ".join([*threads, "python", f"benchmarks/{Path(sys.argv[0]).name}", shlex.join(sys.argv[1:])])
