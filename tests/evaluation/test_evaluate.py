"""Every number of an evaluation, recomputed by other means; what is shown of it; errors."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evaluation_cases import Independent, check, evaluate, softmax

import subspaces as ss
from subspaces.evaluation import Evaluation, Row
from subspaces.evaluation.rows import pictures
from subspaces.experiments.training import Run, RunError


def described(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row.split, row.kind, row.role, row.alphas, row.average) for row in rows]


# Numbers


def test_a_line_with_held_out_images(runs: Callable[..., list[Path]]) -> None:
    (folder,) = runs("held-out")
    (record,) = evaluate(folder, grid=(-0.1, 0.0, 0.3, 0.5, 1.1))
    alphas = [-0.1, 0.0, 0.3, 0.5, 0.7, 1.0, 1.1]
    expected: list[tuple[Any, ...]] = []
    for split in ("test", "validation"):
        expected += [(split, "point", "midpoint" if a == 0.5 else "along", [a], None) for a in alphas]
        expected += [
            (split, "ensemble", "along", [a, round(1 - a, 9)], average)
            for a in alphas[:4]
            for average in ("probabilities", "logits")
        ]
    assert described(record.rows) == expected
    truth = Independent(folder)
    for row in record.rows:
        check(row, [truth.predict(alpha, row.data) for alpha in row.alphas], truth.labels(row.data))
        assert row.coefficients == [pytest.approx([1 - alpha, alpha]) for alpha in row.alphas]  # type: ignore[operator]
    assert ss.Evaluation.load(folder) == record
    assert record.dataset == {
        "name": "digits",
        "classes": [str(c) for c in range(10)],
        "splits": {"test": 597, "validation": 200},
    }
    assert (record.statistics["images"], record.statistics["batch"]) == (1000, 128)
    middle = next(row for row in record.rows if row.role == "midpoint")
    assert middle.metrics["accuracy"] == Run.open(folder).result["test_accuracy"]


# Examples


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
