"""Where the time goes: every second is counted once, and the command line tells."""

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from subspaces.cli import app
from subspaces.core import phases
from subspaces.core.phases import Timings, measured, phase


def test_a_phase_within_another_counts_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 3.0, 7.0, 12.0, 20.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    with measured() as timings, phase("training"):  # 0
        with phase("evaluation"):  # 1 … 3
            pass
        with phase("writing"):  # 7 … 12
            pass  # ends at 20
    assert timings.seconds == {"training": 1 + 4 + 8, "evaluation": 2, "writing": 5}
    assert timings.shares(25.0) == [("training", 13.0), ("evaluation", 2.0), ("writing", 5.0), ("other", 5.0)]


def test_what_fails_is_counted_too_and_nothing_is_left_open() -> None:
    with measured() as timings:
        with pytest.raises(KeyError), phase("data"):
            raise KeyError
        with phase("writing"):
            pass
    assert set(timings.seconds) == {"data", "writing"}
    with phase("data"):  # nobody asks any more
        pass
    assert set(timings.seconds) == {"data", "writing"}


def test_seconds_of_one_phase_are_counted_for_another_as_far_as_there_are() -> None:
    timings = Timings()
    timings.add("capture", 3.0)
    timings.move("capture", "compile", 5.0)
    timings.move("training", "compile", 1.0)
    assert dict(timings.shares(3.0)) == {"compile": 3.0, "other": 0.0}


def test_every_phase_has_a_meaning() -> None:
    assert all(phases.MEANING.values())
    assert 0 < phases.since_start() < 10**6


def test_a_command_tells_where_its_time_went(tmp_path: Path) -> None:
    runs = str(tmp_path)
    said = CliRunner().invoke(
        app,
        ["--timings", "train", "digits-line", "--epochs", "1", "--out", runs, "--device", "cpu", "--no-tensorboard"],
    )
    assert said.exit_code == 0, said.output
    lines = {line.split()[0]: float(line.split()[1]) for line in said.stderr.splitlines() if line.endswith("% ")}
    assert {"import", "data", "training", "evaluation", "writing", "other", "total"} <= set(lines)
    assert sum(value for name, value in lines.items() if name != "total") == pytest.approx(lines["total"], abs=0.1)
    failed = CliRunner().invoke(app, ["--timings", "evaluate", str(tmp_path / "nowhere")])
    assert failed.exit_code != 0
    assert "total" in failed.stderr


def test_what_was_compiled_before_a_command_is_not_its_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch._dynamo.utils

    monkeypatch.setattr(torch._dynamo.utils, "calculate_time_spent", lambda: {"total_wall_time": 1e6})
    said = CliRunner().invoke(
        app,
        ["--timings", "train", "digits-line", "--epochs", "1", "--out", str(tmp_path), "--device", "cpu"],
    )
    assert said.exit_code == 0, said.output
    assert "training" in said.stderr
    assert "compile" not in said.stderr
