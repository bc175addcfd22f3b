"""What was measured of another family, or with other statistics or precision, is measured anew and never shown."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import retrained
import torch

import subspaces as ss
from subspaces.evaluation import Record
from subspaces.evaluation.cache import Measured
from subspaces.evaluation.examples import Predictions, said
from subspaces.evaluation.run_ensembles import evaluate_together

WHOLE: dict[str, Any] = {"grid": (0.0, 0.2), "plane": True, "cells": 2, "check_statistics": (1,), "choose_on": "test"}
CPU: dict[str, Any] = {"device": "cpu", "progress": False}
CHANGES = {"family": {}, "statistics": {"statistics_batches": 1}, "precision": {"precision": "bfloat16"}}


@pytest.fixture
def runs(small: Callable[[str], Path], tmp_path: Path) -> Callable[..., list[Path]]:
    return lambda *names: [retrained.unmeasured(small(name), tmp_path) for name in names]


def measured(record: Record) -> dict[str, Any]:
    """All numbers of a record."""
    values = asdict(record)
    return {name: values[name] for name in ("rows", "planes", "choices", "checks", "statistics")}


def evaluate(folder: Path, **settings: Any) -> ss.Evaluation:
    return ss.evaluate(folder, **{**CPU, **settings})


def strip(folder: Path) -> dict[str, Any]:
    examples = Record.read(folder).examples
    assert examples is not None
    return vars(examples)


@pytest.mark.parametrize("change", CHANGES)
def test_an_evaluation(change: str, runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    """It ends like that of a run of which nothing was measured before."""
    (folder,) = runs("curve")
    first, examples = measured(evaluate(folder, **WHOLE)), strip(folder)
    if change == "family":
        retrained.anew(folder)
    fresh = retrained.unmeasured(folder, tmp_path / "fresh")
    expected = measured(evaluate(fresh, **WHOLE, **CHANGES[change]))
    found = measured(evaluate(folder, **WHOLE, **CHANGES[change]))
    assert found == expected
    assert strip(folder) == strip(fresh)
    if change != "statistics":  # so few images that no prediction may change
        assert strip(folder) != examples
    for name in ("rows", "choices", "planes", "checks"):
        same = change == "statistics" and name in ("planes", "checks")  # which have statistics of their own
        assert (found[name] == first[name]) == same, name
    assert measured(Record.read(folder)) == expected


@pytest.mark.parametrize("change", ["family", "statistics"])
def test_what_is_not_asked_for_again_is_gone(change: str, runs: Callable[..., list[Path]]) -> None:
    (folder,) = runs("curve")
    evaluate(folder, **WHOLE)
    if change == "family":
        retrained.anew(folder)
    record = evaluate(folder, grid=(0.0,), **CHANGES[change])
    assert record == ss.Evaluation.load(folder)
    assert (record.planes, record.checks) == ([], [])
    assert {alpha for row in record.rows for alpha in row.alphas} == {0.0, 0.5, 1.0}
    assert {choice.chosen_on for choice in record.choices} == {"validation"}
    assert strip(folder)["alphas"] == [0.0, 0.5, 1.0]


def test_a_plane_through_a_run_that_was_trained_anew(runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    curve, other = runs("curve", "first")
    settings: dict[str, Any] = {"grid": (), "through": [other], "cells": 2, "check_statistics": (1,)}
    first = evaluate(curve, **settings)
    retrained.anew(other)
    found = evaluate(curve, **settings)
    expected = evaluate(retrained.unmeasured(curve, tmp_path / "fresh"), **settings)
    assert measured(found) == measured(expected)
    assert [plane.name for plane in found.planes] == [plane.name for plane in first.planes]
    assert found.planes[0].values["nll"] != first.planes[0].values["nll"]
    assert found.rows == first.rows


def test_a_plane_with_other_statistics(runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    (folder,) = runs("curve")
    settings: dict[str, Any] = {"grid": (), "plane": True, "cells": 2}
    first = evaluate(folder, **settings)
    found = evaluate(folder, **settings, plane_statistics_batches=1)
    fresh = evaluate(retrained.unmeasured(folder, tmp_path / "fresh"), **settings, plane_statistics_batches=1)
    assert found.planes == fresh.planes
    assert found.planes != first.planes
    assert found.rows == first.rows
    assert len(found.planes) == 1


def test_examples_of_fewer_points_than_there_are(runs: Callable[..., list[Path]]) -> None:
    """As a kill between the last point and the examples would leave them."""
    (folder,) = runs("curve")
    early = evaluate(folder, grid=(0.0,)).examples
    record = evaluate(folder, grid=(0.0, 0.2))
    whole, record.examples = record.examples, early
    record.write(folder)
    assert strip(folder)["alphas"] == [0.0, 0.5, 1.0]
    assert evaluate(folder, grid=(0.0, 0.2)).examples == whole
    assert strip(folder)["alphas"] == [0.0, 0.2, 0.5, 0.8, 1.0]


def numbers(found: list[Measured]) -> list[Any]:
    return [(one.metrics, one.images) for one in found]


@pytest.mark.parametrize("change", CHANGES)
def test_an_ensemble_of_runs(change: str, runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    first, second = runs("first", "second")
    before = evaluate_together([[first, second]], to=tmp_path / "to", **CPU)
    if change == "family":
        retrained.anew(second)
    found = evaluate_together([[first, second]], to=tmp_path / "to", **CHANGES[change], **CPU)
    fresh = evaluate_together([[first, second]], to=tmp_path / "fresh", **CHANGES[change], **CPU)
    assert numbers(found) == numbers(fresh) != numbers(before)


@pytest.mark.parametrize("change", CHANGES)
def test_dropout(change: str, runs: Callable[..., list[Path]], tmp_path: Path) -> None:
    (folder,) = runs("dropout")
    before = evaluate(folder, dropout_passes=2)["dropout"]
    if change == "family":
        retrained.anew(folder)
    found = evaluate(folder, dropout_passes=2, **CHANGES[change])["dropout"]
    fresh = retrained.unmeasured(folder, tmp_path / "fresh")
    assert found == evaluate(fresh, dropout_passes=2, **CHANGES[change])["dropout"]
    assert found.metrics != before.metrics


def test_what_points_said_is_taken_only_as_it_was_made(tmp_path: Path) -> None:
    made = Predictions("0123456789", "one")
    made.add(0.5, "test", said(*torch.tensor([[0.75, 0.25], [0.125, 0.875]]).max(1)), torch.tensor([1, 2]))
    made.write(tmp_path)
    found = Predictions.read(tmp_path, "0123456789", "one")
    assert found is not None
    assert list(found.points) == [0.5]
    assert [values.tolist() for values in found.points[0.5]["test"]] == [[0, 1], [0.75, 0.875]]
    assert found.labels["test"].tolist() == [1, 2]
    assert Predictions.read(tmp_path, "0123456789", "two") is None


def test_examples_of_an_earlier_family_do_not_stay(runs: Callable[..., list[Path]]) -> None:
    (folder,) = runs("curve")
    assert evaluate(folder, grid=(0.0,)).examples is not None
    retrained.anew(folder)
    evaluate(folder, grid=())  # of one point there are none
    assert Record.read(folder).examples is None
