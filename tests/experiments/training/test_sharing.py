"""Several processes that are given the same runs train each of them once, and end with all of them."""

import dataclasses
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from processes import Pause, Worker
from training_cases import DIGITS, assert_same_end

from subspaces.cli import main as app
from subspaces.experiments.training import Recipe, Run, train
from subspaces.experiments.training.display import Display

RECIPE = dataclasses.replace(DIGITS, method="line", epochs=2)
SEEDS = (0, 1, 2)
QUIET: dict[str, Any] = {"device": "cpu", "show": "quiet", "tensorboard": False, "checkpoint_seconds": 0.0, "stack": 1}


def recipes(seeds: Sequence[int]) -> list[Recipe]:
    return [dataclasses.replace(RECIPE, seed=seed) for seed in seeds]


def trains(pause: Pause, out: Path, several: list[Recipe], after: int = 0) -> None:
    """Train, and pause after some steps of the first run."""
    plain = Display.tick
    Display.tick = lambda *told: (plain(*told), pause(after))[0]  # type: ignore[method-assign]
    train(several, out=out, **QUIET)


def types(pause: Pause, *arguments: str) -> None:
    """Type a command."""
    app(arguments)


def starts(run: Run) -> int:
    return len(run.starts())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """What one process makes."""
    return train(recipes(SEEDS), out=tmp_path_factory.mktemp("alone"), **QUIET)


def assert_same_runs(out: Path, alone: list[Run]) -> list[Run]:
    """All runs are finished, as one process would have, and nothing else lies there."""
    found = [Run.under(out, run.recipe) for run in alone]
    for run, expected in zip(found, alone, strict=True):
        assert_same_end(run, expected)
        assert {path.name for path in run.folder.iterdir()} == {path.name for path in expected.folder.iterdir()}
    assert sorted(path.name for path in out.iterdir()) == sorted(run.folder.name for run in found)
    return found


def test_two_processes_share_runs_that_they_name_in_another_order(alone: list[Run], tmp_path: Path) -> None:
    first = Worker(trains, tmp_path, recipes(SEEDS), 5)
    assert first.line() == "there\n"  # in its first run
    second = Worker(trains, tmp_path, recipes(SEEDS[::-1]))
    assert second.line() == f"waiting for {alone[0].folder.name}, which process {first.pid} is training\n"
    assert [Run.under(tmp_path, run.recipe).finished for run in alone] == [False, True, True]
    first.resume.set()
    assert (first.end(), second.end()) == ("", "")
    assert [starts(run) for run in assert_same_runs(tmp_path, alone)] == [1, 1, 1]


def test_processes_that_begin_at_the_same_time_train_every_run_once(alone: list[Run], tmp_path: Path) -> None:
    workers = [Worker(trains, tmp_path, recipes(seeds)) for seeds in (SEEDS, SEEDS[::-1], SEEDS)]
    for worker in workers:
        worker.end()
    assert [starts(run) for run in assert_same_runs(tmp_path, alone)] == [1, 1, 1]


def test_one_that_waits_can_be_stopped(alone: list[Run], tmp_path: Path) -> None:
    run = Run.under(tmp_path, RECIPE)
    options = ["--network", "mlp", "--epochs", "2", "--out", str(tmp_path), "--device", "cpu", "-q", "--no-tensorboard"]
    command = ["train", "digits-line", *options]
    holder = Worker(types, *command, "--checkpoint-seconds", "0")
    holder.end()
    (run,) = (Run.open(folder) for folder in tmp_path.iterdir())
    (run.folder / "result.json").unlink()
    with run.locked():  # in this process, for which others wait
        workers = {number: Worker(types, *command) for number in (signal.SIGTERM, signal.SIGINT)}
        for number, worker in workers.items():
            assert worker.line() == f"waiting for {run.folder.name}, which process {os.getpid()} is training\n"
            os.kill(worker.pid, number)
            assert worker.end(128 + number) == "stopped; the same command continues\n"
    assert not run.finished


# What is left


@pytest.fixture
def copied(alone: list[Run], tmp_path: Path) -> Run:
    """A finished run that can be changed."""
    return Run(Path(shutil.copytree(alone[0].folder, tmp_path / alone[0].folder.name)), alone[0].recipe)


def test_the_checkpoint_of_a_finished_run_is_removed(copied: Run) -> None:
    state = copied.folder / "state.safetensors"
    state.write_bytes(b"of a process that was killed before it could remove it")
    before = starts(copied)
    train(copied.recipe, out=copied.folder.parent, **QUIET)
    assert not state.exists()
    assert starts(copied) == before


def test_a_refused_run_leaves_no_folder_that_was_made_for_it(tmp_path: Path) -> None:
    out = tmp_path / "new" / "runs"
    broken = dataclasses.replace(RECIPE, network="training_cases:nothing")
    with pytest.raises((ValueError, TypeError, RuntimeError, AttributeError)):
        train(broken, out=out, **QUIET)
    assert list(tmp_path.iterdir()) == []
    out.mkdir(parents=True)
    with pytest.raises((ValueError, TypeError, RuntimeError, AttributeError)):
        train(broken, out=out, **QUIET)
    assert list(tmp_path.rglob("*")) == [out.parent, out]  # the user's own
