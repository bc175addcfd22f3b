"""Evaluations of runs: every number recomputed by other means, on a CPU and a GPU; errors; runs that are checked."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import CliRunner
from evaluation_cases import Independent, evaluate, softmax
from helpers import resealed

import subspaces as ss
from subspaces.cli import main as app
from subspaces.evaluation import Evaluation, Row
from subspaces.evaluation.rows import pictures
from subspaces.experiments.training import Run, RunError


def test_examples_are_the_images_that_change(runs: Callable[..., list[Path]]) -> None:
    (folder,) = runs("line")
    (record,) = evaluate(folder, grid=(0.0, 0.2))
    examples = record.examples
    assert examples is not None
    assert Evaluation.load(folder).examples == examples
    assert examples.alphas == [row.alphas[0] for row in record.rows if row.kind == "point"] == [0.0, 0.2, 0.5, 0.8, 1.0]
    truth = Independent(folder)
    p = np.stack([softmax(truth.predict(alpha, "test")) for alpha in examples.alphas])  # [p, n, classes]
    index = np.array(examples.indices)
    assert np.array_equal(examples.predicted, p.argmax(-1)[:, index])
    assert np.allclose(examples.confidence, p.max(-1)[:, index], atol=1e-5)
    assert torch.equal(pictures(examples), truth.dataset.test.images[index])  # type: ignore[union-attr]
    assert np.array_equal(examples.labels, truth.labels("test")[index])
    changes = np.array([len(set(column)) for column in p.argmax(-1).T])
    assert 0 < len(index) <= 48
    assert changes[index].min() > 1
    assert sorted(changes[index], reverse=True) == sorted(changes, reverse=True)[: len(index)]


# Errors


def test_runs_that_cannot_be_evaluated(runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    (folder,) = runs("line")
    with pytest.raises(RunError, match="not a run folder"):
        evaluate(tmp_path / "nowhere")
    family = folder / "family.safetensors"
    content = family.read_bytes()
    family.write_bytes(content[:1000])
    with pytest.raises(RunError, match="damaged"):
        evaluate(folder)
    family.unlink()
    with pytest.raises(RunError, match="not finished, it has no trained family: train it"):
        evaluate(folder)
    family.write_bytes(content)
    (folder / "result.json").unlink()
    with pytest.raises(RunError, match="not finished, it has no result"):
        evaluate(folder)
    assert not (folder / "evaluation.json").exists()


def test_a_run_that_is_in_use_is_left_alone(runs: Callable[..., list[Path]]) -> None:
    (folder,) = runs("line")
    with Run.open(folder).locked(), pytest.raises(RunError, match=f"by process {os.getpid()}"):
        evaluate(folder)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"grid": (0.5, float("nan"))}, "grid=nan: expected a finite number"),
    ({"grid": [i / 10**6 for i in range(20_000)]}, "grid has 20,000 members: expected at most 10,001"),
    ({"cells": 2.5}, "cells=2.5: expected an integer"),
    ({"cells": 1}, "cells=1: expected at least 2 and at most 501"),
    ({"random": 10**9}, "random=1000000000: .* at most 10001"),
    ({"statistics_batches": 0}, "statistics_batches=0: expected at least 1"),
    ({"workers": -1}, "workers=-1: expected at least 0"),
    ({"through": ("a", "b", "c", "d")}, "a plane goes through three networks"),
    ({"device": "gpu"}, "device='gpu'"),
]


def test_wrong_settings(runs: Callable[..., list[Path]]) -> None:
    (folder,) = runs("line")
    for settings, words in WRONG:
        with pytest.raises(ValueError, match=words):
            ss.evaluate(folder, **{"progress": False, **settings})
    assert not (folder / "evaluation.json").exists()


def about(row: Row) -> tuple[object, ...]:
    return row.kind, row.role, row.alphas, row.data, row.average, row.severity


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["line", "curve", "simplex", "lenet"])
def test_a_gpu_gives_the_numbers_of_the_cpu(name: str, runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    (folder,) = runs(name)
    other = Path(shutil.copytree(folder, tmp_path / "gpu" / folder.name))
    records: list[Evaluation] = []
    for one, device in ((folder, "cpu"), (other, "cuda")):
        settings = {"device": device, "precision": "float32", "plane": name in ("curve", "simplex"), "cells": 4}
        settings["corruptions"] = ss.Corruptions(["fog", "contrast"], [3])
        records.append(ss.evaluate(one, random=3, progress=False, **settings))
    cpu, gpu = records
    assert [about(row) for row in gpu.rows] == [about(row) for row in cpu.rows]
    assert gpu.statistics == cpu.statistics
    for expected, found in zip(cpu.rows, gpu.rows, strict=True):
        assert found.metrics["accuracy"] == pytest.approx(expected.metrics["accuracy"], abs=2 / expected.count)
        rel = 5e-3 if expected.group else 1e-3  # corrupted images differ in a grey level here and there
        assert found.metrics["nll"] == pytest.approx(expected.metrics["nll"], rel=rel)
        assert found.diversity == (expected.diversity and pytest.approx(expected.diversity, abs=5e-3))
    for before, after in zip(cpu.planes, gpu.planes, strict=True):
        assert after.xs == pytest.approx(before.xs)
        for one_row, other_row in zip(before.values["nll"], after.values["nll"], strict=True):
            assert other_row == pytest.approx(one_row, rel=1e-3)
    again = ss.evaluate(other, random=3, progress=False)  # nothing is left to measure
    assert again.rows == gpu.rows


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
