"""Cases shared among forked workers."""

import dataclasses
import json
import os
import random
import shutil
import struct
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from campaign import warm
from campaign.verdict import Outcome

Task = tuple[str, int]


class Kind(Protocol):
    """One kind of cases."""

    kind: str

    def label(self, index: int, chance: random.Random) -> str:
        """Return in a few words what the case of this number will be."""

    def run(self, index: int, chance: random.Random, folder: Path) -> Outcome:
        """Run the case of this number in a folder that does not exist yet."""


def chance_of(seed: int, kind: str, index: int) -> random.Random:
    """Return the random numbers of one case, which no other case and no number of jobs changes."""
    return random.Random(f"{seed} {kind} {index}")


def run(
    kinds: Mapping[str, Kind],
    tasks: Sequence[Task],
    *,
    seed: int,
    jobs: int,
    base: Path,
    keep: bool = False,
    first: Callable[[], None] | None = None,
) -> list[Outcome]:
    """Run cases on so many processes, each of which calls `first` first, and return their outcomes in order."""
    order = list(tasks)
    random.Random(seed).shuffle(order)  # so that the long ones of a kind do not come together
    with tempfile.TemporaryFile(buffering=0) as queue:
        queue.write(b"".join(struct.pack("q", at) for at in range(len(order))))
        queue.seek(0)  # all workers read on from the same place

        def work(results: IO[str]) -> None:
            if first is not None:
                first()
            while found := os.read(queue.fileno(), 8):
                kind, index = order[struct.unpack("q", found)[0]]
                outcome = one(kinds[kind], index, seed, base, keep)
                print(json.dumps(dataclasses.asdict(outcome)), file=results, flush=True)

        workers = [_worker(work, base / f"worker-{number}") for number in range(jobs)]
        for pid in workers:
            os.waitpid(pid, 0)
    found: dict[Task, Outcome] = {}
    for path in sorted(base.glob("worker-*")):
        for line in path.read_text().splitlines():
            outcome = Outcome(**json.loads(line))
            found[outcome.kind, outcome.index] = outcome
        path.unlink()
    lost = {task: Outcome(*task, "lost", "", bad="the campaign's worker ended in this case") for task in tasks}
    return [{**lost, **found}[task] for task in sorted(tasks)]


def _worker(work: Callable[[IO[str]], None], path: Path) -> int:
    """Fork a process that writes what it finds to a file, and return its number."""
    pid = os.fork()
    if pid:
        return pid
    try:
        warm.die_with_parent()
        with open(path, "a") as results:
            work(results)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def one(kind: Kind, index: int, seed: int, base: Path, keep: bool) -> Outcome:
    """Run one case in a folder of its own."""
    folder = base / "cases" / f"{kind.kind}-{index}"
    folder.parent.mkdir(exist_ok=True)
    try:
        return kind.run(index, chance_of(seed, kind.kind, index), folder)
    except Exception:
        text = " / ".join(traceback.format_exc().splitlines()[-3:])
        return Outcome(kind.kind, index, "the campaign", "", bad=f"the campaign itself failed: {text}")
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
