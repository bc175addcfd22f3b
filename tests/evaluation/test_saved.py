"""Evaluations as files and as frames: what is saved is loaded, and what is no evaluation is refused by its place."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from family_cases import LOADERS, TEST, family
from helpers import resealed
from torch import nn

import subspaces as ss
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.rows import Training

TRAINING = Training("g", "l", {"a": 1}, {}, [1, "x"], [0], "d", "f", "n", 0.0, 1, 2, [{"epoch": 1}], None, "", {})


@pytest.fixture(scope="module")
def measured() -> Evaluation:
    """An evaluation with something of everything but training and examples."""
    more = {"corruptions": {"dark": {3: TEST}}, "outliers": {"far": TEST}, "plane": True, "cells": 2}
    return ss.evaluate(family(ss.Simplex(3)), **LOADERS, random=2, triangle=2, **more)


def test_what_is_saved_is_loaded(measured: Evaluation, tmp_path: Path) -> None:
    torch.manual_seed(0)
    images = [(torch.randn(30, 1, 4, 4), torch.arange(30) % 3)]
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(16, 3)) for _ in range(2)]
    shown = ss.evaluate(nets, test=images, progress=False)
    assert shown.examples is not None
    for made in (measured, shown, dataclasses.replace(shown, training=TRAINING, command="subspaces evaluate x")):
        for target in (tmp_path, tmp_path / "mine.json"):  # a run folder, and a file of the user's
            made.save(target)
            assert type(made).load(target) == made
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evaluation.json", "mine.json"]


def test_numbers_that_are_not_finite_are_kept(measured: Evaluation, tmp_path: Path) -> None:
    for value in (math.nan, math.inf, -math.inf):
        rows = [dataclasses.replace(one, metrics={"nll": value}) for one in measured.rows]
        made = dataclasses.replace(measured, rows=rows)
        assert repr(type(made).load(made.save(tmp_path))) == repr(made)  # which tells nan from nan, where == does not


def test_the_frame_has_a_row_for_each_row(measured: Evaluation) -> None:
    frame = measured.frame
    assert len(frame) == len(measured.rows)
    for (_, line), row in zip(frame.iterrows(), measured.rows, strict=True):
        assert (line["data"], line["severity"], line["group"], line["count"]) == (
            row.data,
            row.severity,
            row.group,
            row.count,
        )
        assert [list(alpha) for alpha in line["alphas"]] == row.alphas
        told = {name: value for name, value in line.items() if name in row.metrics}
        assert told == row.metrics
        assert pd.isna(line["tv"]) == (row.diversity is None)
        assert pd.isna(line["temperature"]) == (row.scaled is None)
        assert row.scaled is None or line["scaled_nll"] == row.scaled["nll"]
    assert set(frame["group"]) == {"", "given", "outliers"}
    assert set(frame["answer"]) == {"", "midpoint", "vertices", "random"}
    assert dataclasses.replace(measured, rows=[]).frame.empty
    assert measured.splits == ["test", "validation"]


DAMAGES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda values: values.pop("dataset"), r"damaged \(.*'dataset'.*\): remove it and evaluate"),
    (lambda values: values.update(more=1), r"damaged \(.*'more'.*\): remove it and evaluate"),
    (lambda values: values["rows"].append(3), r"damaged \(.*a Row: 'int' object.*\): remove it and evaluate"),
    (lambda values: values["planes"][0].update(more=1), r"damaged \(.*'more'.*\): remove it and evaluate"),
    (lambda values: values.update(schema=1), "has schema 1, this version reads 3: remove it and evaluate anew"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_what_is_damaged_is_named(
    damage: Callable[[Any], Any], message: str, measured: Evaluation, tmp_path: Path
) -> None:
    measured.save(tmp_path)
    resealed(tmp_path / "evaluation.json", damage)
    with pytest.raises(ss.FileError, match=rf"evaluation\.json.* {message}"):
        Evaluation.load(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", "1", "[" * 10**5])
def test_what_is_no_evaluation_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text(text)
    with pytest.raises(ss.FileError, match=r"evaluation\.json is damaged"):
        Evaluation.load(tmp_path)
    with pytest.raises(ss.FileError, match=r"has no evaluation\.json: run `subspaces evaluate"):
        Evaluation.load(tmp_path / "none")
