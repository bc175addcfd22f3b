"""Several processes that measure the same: each thing is measured once, and nothing that one has written is lost."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processes import Pause, Worker

import subspaces as ss
from subspaces.evaluation import Evaluation
from subspaces.evaluation.predictor import Predictor
from subspaces.experiments.evaluating.evaluate import ensembles_in, evaluate_together

Runs = Callable[..., list[Path]]
SMALL: dict[str, Any] = {"device": "cpu", "grid": (0.0, 0.5, 1.0)}


def counting(pause: Pause, calls: int) -> None:
    """Say so for each network that is asked, and pause after some."""
    plain = Predictor.outputs

    def outputs(self: Predictor, points: Any, data: Any, **how: Any) -> Any:
        for _ in points if data == "test" else ():
            print("asked", flush=True)
            pause(calls)
        return plain(self, points, data, **how)

    Predictor.outputs = outputs  # type: ignore[method-assign]


def evaluates(pause: Pause, folders: list[Path], calls: int = 0) -> None:
    counting(pause, calls)
    ss.evaluate(folders, progress=False, **SMALL)


def without_environment(record: Evaluation) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in ("environment", "training")}


def test_two_processes_share_runs_and_each_network_is_asked_once(runs: Runs, tmp_path: Path) -> None:
    folders = runs("line", "standard")
    copies = [Path(shutil.copytree(folder, tmp_path / "alone" / folder.name)) for folder in folders]
    first = Worker(evaluates, folders, 2)
    assert [first.line(), first.line(), first.line()] == ["asked\n", "asked\n", "there\n"]
    second = Worker(evaluates, folders)
    waiting = f"waiting for {folders[0].name}, which process {first.pid} is working on\n"
    assert [second.line(), second.line()] == ["asked\n", waiting]  # the other run is one network
    first.resume.set()
    assert (first.end(), second.end()) == ("asked\n", "")
    alone = ss.evaluate(copies, progress=False, **SMALL)
    for folder, record in zip(folders, alone, strict=True):
        assert without_environment(Evaluation.load(folder)) == without_environment(record)


# Files that several processes add to


def together(pause: Pause, groups: list[list[Path]], to: Path, calls: int = 0) -> None:
    counting(pause, calls)
    evaluate_together(groups, to=to, device="cpu", progress=False)


def test_ensembles_are_shared_and_leave_no_locks(runs: Runs, tmp_path: Path) -> None:
    standard, other, line = runs("standard", "other", "line")
    groups, to = [[standard, other], [other, line]], tmp_path / "to"
    first = Worker(together, groups, to, 2)
    assert [first.line(), first.line(), first.line()] == ["asked\n", "asked\n", "there\n"]
    second = Worker(together, groups, to)
    names = ", ".join(sorted((standard.name, other.name)))
    waiting = f"waiting for the ensemble of {names}, which process {first.pid} is working on\n"
    assert [second.line() for _ in range(3)] == ["asked\n", "asked\n", waiting]
    first.resume.set()
    assert (first.end(), second.end()) == ("", "")
    assert os.listdir(to) == ["ensembles.json"]
    assert len(ensembles_in(to / "ensembles.json")) == 2
    before = (to / "ensembles.json").stat().st_mtime_ns
    evaluate_together(groups, to=to, device="cpu", progress=False)
    assert (to / "ensembles.json").stat().st_mtime_ns == before


# A disk that cannot be written to
