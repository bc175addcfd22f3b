"""Several processes that measure the same: each thing is measured once, and nothing that one has written is lost."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import Pause, Worker

import subspaces as ss
from subspaces.cli import app
from subspaces.evaluation import Evaluation
from subspaces.evaluation.predictor import Predictor
from subspaces.experiments.evaluating.ensembles import ensembles_in, evaluate_together
from subspaces.experiments.training import Run
from subspaces.experiments.training.display import Display

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


def trains(pause: Pause, folder: Path) -> None:
    plain = Display.tick
    Display.tick = lambda *told: (plain(*told), pause(2))[0]  # type: ignore[method-assign]
    ss.train(Run.open(folder).recipe, out=folder.parent, device="cpu", show="quiet", tensorboard=False)


def test_a_run_that_is_trained_anew_is_waited_for(runs: Runs) -> None:
    (folder,) = runs("standard")
    before = (folder / "family.safetensors").stat().st_mtime_ns
    (folder / "result.json").unlink()
    first = Worker(trains, folder)
    assert first.line() == "there\n"
    second = Worker(evaluates, [folder])
    assert second.line() == f"waiting for {folder.name}, which process {first.pid} is training\n"
    first.resume.set()
    first.end()
    said = [line for line in second.end().splitlines() if not line.startswith("waiting for")]  # until it lets go
    assert said == ["asked"]
    assert (folder / "family.safetensors").stat().st_mtime_ns > before


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


def evaluates_as_nobody(pause: Pause, folder: Path) -> None:
    """Evaluate without the rights of root, who may write everywhere, from when the folder is first written to."""
    plain = Run.attempt

    def attempt(self: Run) -> Any:
        if os.geteuid() == 0:
            os.seteuid(65534)
        return plain(self)

    Run.attempt = attempt  # type: ignore[method-assign]
    os.chdir(folder.parent)  # above it not everybody may look
    app(["evaluate", folder.name, "--device", "cpu", "-q"])


@pytest.mark.parametrize("lock", [True, False])
def test_a_folder_that_cannot_be_written_to_is_named(lock: bool, runs: Runs) -> None:
    (folder,) = runs("standard")
    folder.parent.chmod(0o755)
    if not lock:
        (folder / ".lock").unlink()
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    said = Worker(evaluates_as_nobody, folder).end(1)
    folder.chmod(0o755)
    assert said.startswith(f"error: {folder.name} cannot be written to (Permission denied): ")
    assert len(said.splitlines()) == 1
