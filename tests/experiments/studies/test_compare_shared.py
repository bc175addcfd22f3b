"""Two processes with the same comparison share its runs and measurements, and both end with the whole table."""

import importlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes import Pause, Worker
from study_cases import QUIET, STANDARD

import subspaces as ss
from subspaces.evaluation.predictor import Predictor
from subspaces.experiments.studies import tables
from subspaces.experiments.training.display import Display

SMOOTHED = replace(STANDARD, name="digits-smoothed", label_smoothing=0.1)
SMALL: dict[str, Any] = {**QUIET, "epochs": 1, "checkpoint_seconds": 0.0, "seeds": (0, 1)}


def without_plotly(*_: Any) -> None:
    raise ImportError("no page")


def compares(pause: Pause, folder: Path, steps: int = 0, answers: int = 0) -> None:
    """Compare, and pause after some steps of training or before some network is asked; figures take their time."""
    importlib.import_module("subspaces.experiments.studies.compare").write_report = without_plotly  # type: ignore[attr-defined]
    tables.write_figure = lambda *_: []  # type: ignore[assignment]
    tick, answer = Display.tick, Predictor.outputs
    asked = []

    def call(*arguments: Any, **how: Any) -> Any:
        if "test" in arguments:
            asked.append(arguments)
            if answers:
                pause(answers)
        return answer(*arguments, **how)

    if steps:
        Display.tick = lambda *told: (tick(*told), pause(steps))[0]  # type: ignore[method-assign]
    Predictor.outputs = call  # type: ignore[method-assign]
    ss.compare([STANDARD, SMOOTHED], runs=folder / "runs", out=folder / "to", **SMALL)
    print("asked", len(asked))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """What one process makes, and how many networks it asks."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, asked(Worker(compares, folder).end())


def asked(output: str) -> int:
    (number,) = (line.split()[1] for line in output.splitlines() if line.startswith("asked"))
    return int(number)


def assert_same_table(folder: Path, alone: Path) -> None:
    for part in ("runs", "to"):
        assert sorted(os.listdir(folder / part)) == sorted(os.listdir(alone / part))
    for name in ("comparison.json", "comparison.csv", "comparison.md"):
        assert (folder / "to" / name).read_bytes() == (alone / "to" / name).read_bytes()


def test_two_processes_train_and_measure_everything_once(alone: tuple[Path, int], tmp_path: Path) -> None:
    first = Worker(compares, tmp_path, 3)
    assert first.line() == "there\n"
    second = Worker(compares, tmp_path)
    assert second.line().endswith(f"which process {first.pid} is training\n")
    first.resume.set()
    assert asked(first.end()) + asked(second.end()) == alone[1]
    assert_same_table(tmp_path, alone[0])


def test_what_a_killed_process_leaves_is_measured_by_the_other(alone: tuple[Path, int], tmp_path: Path) -> None:
    first = Worker(compares, tmp_path, 0, alone[1])  # to the last network of the ensemble
    assert first.line() == "there\n"
    second = Worker(compares, tmp_path)
    assert second.line().endswith(f"which process {first.pid} is working on\n")
    first.kill()
    second.end()
    assert_same_table(tmp_path, alone[0])
