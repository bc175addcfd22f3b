"""Run folders are checked as a whole: what is wrong is a sentence that names the file, and nothing else is said."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import CliRunner
from evaluation_cases import evaluate
from helpers import resealed

import subspaces as ss
from subspaces.cli import main as app
from subspaces.experiments.training import Run

Runs = Callable[..., list[Path]]
runner = CliRunner()


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 2
    path.unlink()
    path.write_bytes(content)


def test_whole_runs_have_nothing_wrong(runs: Runs):
    line, standard = runs("line", "standard")
    evaluate(line, grid=(0.0,))
    assert ss.check(line) == ss.check([line, str(standard)]) == ss.check(line.parent) == []
    result = runner.invoke(app, ["check", str(line), str(standard)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"whole: {line}\nwhole: {standard}\n"
    assert runner.invoke(app, ["check", "--quiet", str(line)]).output == ""


def test_every_file_is_looked_at(runs: Runs, tmp_path: Path):
    (line,) = runs("line")
    evaluate(line, grid=(0.0,))
    names = sorted(path.name for path in line.iterdir() if path.suffix in (".json", ".jsonl", ".safetensors"))
    assert len(names) == 7
    for name in names:
        folder = tmp_path / name / line.name
        shutil.copytree(line, folder)
        flip(folder / name)
        problems = ss.check(folder)
        assert problems, name
        assert str(folder / name) in problems[0]
        assert "remove" in problems[0]
        result = runner.invoke(app, ["check", str(folder)])
        assert (result.exit_code, result.stderr) == (1, "")
        assert result.stdout.splitlines() == [f"wrong: {problem}" for problem in problems]


def test_an_evaluation_of_another_family_is_told(runs: Runs):
    (line,) = runs("line")
    evaluate(line, grid=(0.0,))
    run = Run.open(line)
    resealed(line / "evaluation.json", lambda values: values["environment"].update(family="another"))
    problems = ss.check(run.folder)
    assert f"{line} was trained anew since it was evaluated: evaluate it again" in problems


@pytest.mark.parametrize("name", ["nowhere", "file", "empty"])
def test_what_is_no_run_is_told(name: str, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (problem,) = ss.check(tmp_path / name)
    assert problem.startswith(f"{tmp_path / name} is no ")
    assert runner.invoke(app, ["check", str(tmp_path / name)]).exit_code == 1


def test_a_run_that_is_trained_is_not_called_damaged(runs: Runs):
    (line,) = runs("line")
    run = Run.open(line)
    with run.locked():
        (problem,) = ss.check(line)
    assert problem == f"{line} is in use by process {os.getpid()}: check it when that has ended"
    assert ss.check(line) == []


@pytest.mark.parametrize("left", ["state.safetensors", "log.jsonl", "environment.json", "result.json"])
def test_a_run_that_lost_its_configuration_is_told(left: str, runs: Runs, tmp_path: Path):
    (line,) = runs("line")
    other = tmp_path / "runs" / line.name
    other.mkdir(parents=True)
    (other / left).write_bytes(b"x")
    for folder in (other, other.parent):
        (problem,) = ss.check(folder)
        assert problem.startswith(f"{other} is not a run folder: it has no config.json")
