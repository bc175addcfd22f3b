"""Evaluations as files and frames: what is saved is loaded, what is damaged is named; and images that change."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from evaluation_cases import LOADERS, TEST, family
from helpers import resealed
from torch import nn

import subspaces as ss
from subspaces.core.storage import FileError
from subspaces.evaluation import files
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.rows import Training, small_pictures

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


def test_numbers_that_json_does_not_have_are_objects_that_name_them():
    value = {"a": [[1, math.nan], {"b": math.inf}], "c": {"d": None, "e": "ω"}, "f": [True, "float"]}
    found = json.loads(files.to_json(value))
    assert found == {**value, "a": [[1, {"float": "nan"}], {"b": {"float": "inf"}}]}


# Lines


def test_no_byte_of_a_line_can_be_changed_unnoticed(tmp_path: Path):
    path, rows = tmp_path / "lines", [{"epoch": 3, "accuracy": 0.91}, {"list": [{"on": "test"}], "l2": None}]
    for row in rows:
        files.append_line(path, row)
    assert files.read_lines(path, "remove it") == rows
    whole = path.read_bytes()
    for place in range(len(whole) - 1):
        for bit in (0, 1, 4, 5):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
            try:
                assert files.read_lines(path, "remove it") == rows, place  # a space that became another one
            except FileError:
                continue


def test_a_line_that_was_not_written_to_its_end_is_replaced(tmp_path: Path):
    path = tmp_path / "lines"
    for left in (b"", b"{", b'{"a": 1', b"x" * 10_000):
        path.unlink(missing_ok=True)
        files.append_line(path, {"a": 1})
        path.write_bytes(path.read_bytes() + left)
        assert files.read_lines(path, "remove it") == [{"a": 1}]
        files.append_line(path, {"a": 2})
        assert files.read_lines(path, "remove it") == [{"a": 1}, {"a": 2}]


def test_small_pictures_of_any_numbers_are_stretched_and_others_are_left_out() -> None:
    images = torch.randn(5, 3, 8, 9, generator=torch.Generator().manual_seed(2))
    found = small_pictures(images)
    assert found is not None
    for image, picture in zip(images.double().numpy(), found.numpy(), strict=True):
        low, high = image.min(), image.max()
        assert np.abs(255 * (image - low) / (high - low) - picture).max() <= 0.5 + 1e-9
        assert (picture.min(), picture.max()) == (0, 255)
    whole = torch.randint(256, (2, 1, 64, 64), dtype=torch.uint8)
    assert torch.equal(small_pictures(whole), whole)  # type: ignore[arg-type]
    assert torch.equal(small_pictures(torch.ones(2, 1, 4, 4)), torch.zeros(2, 1, 4, 4).byte())  # type: ignore[arg-type]
    for other in (torch.zeros(2, 4, 8, 8), torch.zeros(2, 1, 64, 65)):
        assert small_pictures(other) is None
