"""An evaluation on a GPU, with its captured graphs, against one on the CPU."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import subspaces as ss
from subspaces.evaluation import Evaluation, Row


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
