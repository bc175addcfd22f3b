"""Defects that are planted, to see that the campaign finds them."""

import functools
import os
import pickle
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from campaign import pool
from campaign.verdict import Outcome

LAST = 5000  # case that is looked at


@dataclass(frozen=True)
class Plant:
    """A defect: how it comes into this process, and the first cases of a kind and label that should find it."""

    told: str
    install: Callable[[], None]
    kind: str
    label: str  # a pattern
    count: int


def _unchecked_digest() -> None:
    from subspaces.core import files

    files.check = lambda header, tensors: None


def _torn_write() -> None:
    from subspaces.core import files

    def write(path: Path, *content: bytes) -> None:
        with open(path, "wb") as file:
            for part in content:
                file.write(part)
            os.fsync(file.fileno())

    files.write = write


def _no_fsync() -> None:
    from subspaces.core import files

    class System:
        fsync = staticmethod(lambda number: None)

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

    files.os = System()


def _forgotten_progress() -> None:
    from subspaces.experiments.training.runs import Run

    load = Run.load_checkpoint

    def forgetful(self: Run) -> Any:
        found = load(self)
        return found and (found[0], {**found[1], "epoch": 0, "done": 0})

    Run.load_checkpoint = forgetful


def _leftover() -> None:
    unlink = Path.unlink

    def lazy(self: Path, missing_ok: bool = False) -> None:
        if self.name != "state.safetensors":
            unlink(self, missing_ok)

    Path.unlink = lazy


def _traceback() -> None:
    from subspaces.cli import errors

    errors.EXPECTED = (BlockingIOError,)


def _raw_message() -> None:
    from subspaces.cli import errors

    errors._as_typed = lambda text, options: "unsupported operand type(s) for +: 'int' and 'NoneType'"


def _current_folder() -> None:
    sys.path.insert(0, "")


def _open_pickle() -> None:
    from subspaces.experiments.data import cifar10, pickles

    cifar10._published_content = lambda file: file.read_bytes()
    pickles.read = lambda content, where: pickle.loads(content, encoding="bytes")


PLANTS: dict[str, Plant] = {
    "unchecked-digest": Plant(
        "digests are not checked", _unchecked_digest, "mutations", r"finished family\S+: a flipped bit; evaluate$", 3
    ),
    "torn-write": Plant("files are written in place", _torn_write, "crashes", r"train from nothing: in .*config", 1),
    "no-fsync": Plant(
        "files are not brought to the disk", _no_fsync, "crashes", r"nothing: power .* replace .*(st|res)", 3
    ),
    "forgotten-progress": Plant(
        "a resumed run begins again", _forgotten_progress, "crashes", r"train from interrupted: before", 2
    ),
    "leftover": Plant(
        "the checkpoint of a finished run stays", _leftover, "crashes", r"train from interrupted: after", 1
    ),
    "traceback": Plant("errors are shown as tracebacks", _traceback, "commands", r"evaluate|report", 6),
    "raw-message": Plant("messages of Python's are shown", _raw_message, "commands", r"train|compare|study", 6),
    "current-folder": Plant(
        "modules are taken from the current folder", _current_folder, "malice", r"current folder", 1
    ),
    "open-pickle": Plant("batches of images are read with pickle", _open_pickle, "malice", r"a pickle as data", 1),
}
planted: list[str] = []


def install(name: str) -> None:
    """Plant a defect in this process, and in those that it starts."""
    PLANTS[name].install()
    planted.append(name)


def again() -> str:
    """Return the Python that plants the same in a process of its own."""
    tests = str(Path(__file__).parents[1])
    found = "".join(f"plants.install({name!r}); " for name in planted)
    return f"import sys; sys.path.append({tests!r}); from campaign import plants; {found}" if found else ""


def cases_of(plant: Plant, kind: pool.Kind, seed: int) -> list[pool.Task]:
    """Return the first cases that a defect should spoil."""
    every = (index for index in range(LAST) if re.search(plant.label, kind.label(index, _chance(kind, seed, index))))
    return [(kind.kind, index) for index in islice(every, plant.count)]


def _chance(kind: pool.Kind, seed: int, index: int) -> Any:
    return pool.chance_of(seed, kind.kind, index)


def cases_of_all(kinds: dict[str, pool.Kind], seed: int) -> dict[str, list[pool.Task]]:
    """Return the cases that should find each defect."""
    return {name: cases_of(plant, kinds[plant.kind], seed) for name, plant in PLANTS.items()}


def find_all(kinds: dict[str, pool.Kind], outcomes: Sequence[Outcome], seed: int, jobs: int, base: Path) -> int:
    """Plant one defect after the other, print which cases find it, and return how many are not found.

    A defect is found by a case that is bad with it and was not without it.
    """
    clean, tasks = {(one.kind, one.index): one for one in outcomes}, cases_of_all(kinds, seed)
    missed = 0
    for name, plant in PLANTS.items():
        plan = functools.partial(install, name)
        found = pool.run(kinds, tasks[name], seed=seed, jobs=jobs, base=base, first=plan)
        new = [one for one in found if one.bad and not clean[one.kind, one.index].bad]
        missed += not new
        text = f"{new[0].kind}:{new[0].index}  {new[0].bad}" if new else "NOT FOUND"
        print(f"{name}: {plant.told}; {len(new)} of {len(found)} cases find it\n    {text}", flush=True)
    print(f"{missed} of {len(PLANTS)} planted defects were not found")
    return missed
