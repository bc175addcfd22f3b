"""Run folders are checked as a whole: what is wrong is a sentence that names the file, and nothing else is said."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from evaluation_cases import evaluate
from helpers import resealed
from typer.testing import CliRunner

import subspaces as ss
from subspaces.cli import app
from subspaces.core import files
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


def test_several_things_may_be_wrong_at_once(runs: Runs, tmp_path: Path):
    (line,) = runs("line")
    evaluate(line, grid=(0.0,))
    names = ("log.jsonl", "measurements.jsonl", "evaluation.json")
    for name in names:
        flip(line / name)
    found = ss.check(line.parent)
    assert len(found) == 3
    assert all(any(name in problem for problem in found) for name in names)


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


def test_trunks_are_looked_at(tmp_path: Path):
    ss.train("digits-standard", epochs=2, trunk=1, branch=1, out=tmp_path, device="cpu", show="quiet")
    assert ss.check(tmp_path) == []
    (trunk,) = (tmp_path / ".trunks").iterdir()
    flip(trunk)
    (problem,) = ss.check(tmp_path)
    assert str(trunk) in problem


def test_a_run_that_is_trained_is_not_called_damaged(runs: Runs):
    (line,) = runs("line")
    run = Run.open(line)
    with run.locked():
        (problem,) = ss.check(line)
    assert problem == f"{line} is in use by process {os.getpid()}: check it when that has ended"
    assert ss.check(line) == []


def test_a_result_without_its_networks_is_told_and_the_rest_is_looked_at(runs: Runs):
    (line,) = runs("line")
    evaluate(line, grid=(0.0,))
    (line / "family.safetensors").unlink()
    flip(line / "measurements.jsonl")
    first, second = ss.check(line)
    assert first.startswith(f"{line} has a result without its networks: put family.safetensors back to evaluate it")
    assert "measurements.jsonl is damaged" in second


@pytest.mark.parametrize("left", ["state.safetensors", "log.jsonl", "environment.json", "result.json"])
def test_a_run_that_lost_its_configuration_is_told(left: str, runs: Runs, tmp_path: Path):
    (line,) = runs("line")
    other = tmp_path / "runs" / line.name
    other.mkdir(parents=True)
    (other / left).write_bytes(b"x")
    for folder in (other, other.parent):
        (problem,) = ss.check(folder)
        assert problem.startswith(f"{other} is not a run folder: it has no config.json")


def test_a_file_that_others_replace_is_read_as_one_of_them(tmp_path: Path):
    families = [ss.Subspace(lambda: torch.nn.Linear(50, 50), ss.Line(), seed=seed) for seed in range(2)]
    sums = {ss.save(family, tmp_path / "family.safetensors") for family in families}
    stop = threading.Event()

    def replace() -> None:
        while not stop.is_set():
            for family in families:
                ss.save(family, tmp_path / "family.safetensors")

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for _ in range(150):
            header, tensors = files.read_tensors(tmp_path / "family.safetensors")
            files.check(header, tensors)
            assert header["checksum"] in sums
    finally:
        stop.set()
        writer.join()
