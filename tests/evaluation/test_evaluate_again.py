"""Evaluating again: what is done is not measured twice, and what was interrupted continues."""

import functools
import gc
import os
import shutil
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evaluation_cases import Independent, check_row, evaluate
from helpers import resealed, unsealed

import subspaces as ss
from subspaces.core import files, storage
from subspaces.evaluation import Record, journal
from subspaces.evaluation.predictor import Predictor
from subspaces.experiments.training import Run, RunError, Stopped


def comparable(folder: Path) -> dict[str, Any]:
    values = unsealed(folder / "evaluation.json")
    del values["environment"]["time"]
    return values


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for every network that is measured."""
    seen: list[int] = []
    measure = Predictor.__call__

    def counted(self: Predictor, weights: Any) -> Any:
        seen.extend([1] * len(weights))
        return measure(self, weights)

    monkeypatch.setattr(Predictor, "__call__", counted)
    return seen


def test_nothing_is_measured_twice(runs: Callable[..., list[Path]], calls: list[int]) -> None:
    (folder,) = runs("held-out")
    settings = {"grid": (0.0, 0.1), "plane": False}
    (first,) = evaluate(folder, **settings)
    assert len(calls) == 5
    stamps = {name: (folder / name).stat().st_mtime_ns for name in ("evaluation.json", "predictions.safetensors")}
    (again,) = evaluate(folder, **settings, data="there is no such folder")
    assert len(calls) == 5
    assert again == first
    assert stamps == {name: (folder / name).stat().st_mtime_ns for name in stamps}
    (more,) = evaluate(folder, grid=(0.0, 0.1, 0.2))
    assert len(calls) == 7
    assert {row.key for row in more.rows} > {row.key for row in first.rows}
    evaluate(folder, **settings, check_statistics=(1,))
    assert len(calls) == 7 + 3
    evaluate(folder, **settings, statistics_batches=1)
    assert len(calls) == 10 + 5


Whole = Callable[[str], dict[str, Any]]
INTERRUPTED = {"grid": (0.0, 0.1, 0.2), "triangle": 3, "random": 2, "plane": True, "cells": 4, "choose_on": "test"}


@pytest.fixture(scope="module")
def uninterrupted(
    trained: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, Any]]:
    """What the evaluation of a run comes to, measured once."""

    @functools.cache
    def whole(name: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("whole") / trained[name].name
        shutil.copytree(trained[name], folder)
        evaluate(folder, **INTERRUPTED)
        return comparable(folder)

    return whole


class Breaks(Exception):
    """What a test stops an evaluation with."""


@pytest.mark.parametrize(
    ("name", "after", "stop"),
    [
        ("curve", 4, "error"),
        ("curve", 4, "kill"),
        ("curve", 20, "signal"),
        ("simplex", 10, "signal"),
        ("simplex", 10, "kill"),
        ("simplex", 28, "error"),
    ],
)
def test_an_interrupted_evaluation_ends_like_one_that_was_not(
    name: str,
    after: int,
    stop: str,
    runs: Callable[..., list[Path]],
    uninterrupted: Whole,
    calls: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder,) = runs(name)
    whole = uninterrupted(name)
    total = {"curve": 7, "simplex": 7 + 6 + 2}[name] + 16
    assert len(calls) in (total, 0)  # measured once for all
    calls.clear()
    left = folder.parent / "left"

    def progress(*_: Any) -> None:
        if len(calls) < after:
            return
        if stop == "error":
            raise Breaks
        if stop == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        elif not left.exists():  # what a kill would leave behind at this moment
            shutil.copytree(folder, left / folder.name)

    if stop == "kill":
        monkeypatch.setattr(journal, "SECONDS", 0.0)
        monkeypatch.setattr(journal, "SHARE", 0)
        evaluate(folder, **INTERRUPTED, progress=progress)
        folder = left / folder.name
    else:
        with pytest.raises(Breaks if stop == "error" else Stopped):
            evaluate(folder, **INTERRUPTED, progress=progress)
        assert after <= len(calls) <= after + 3
    calls.clear()
    assert Record.read(folder).rows
    evaluate(folder, **INTERRUPTED)
    assert 0 < len(calls) <= total - after + 3
    assert comparable(folder) == whole
    assert comparable(folder)["examples"] is not None


def test_another_family_is_not_mixed_with_the_first(
    runs: Callable[..., list[Path]], trained: dict[str, Path], calls: list[int]
) -> None:
    (folder,) = runs("standard")
    evaluate(folder)
    shutil.copy(trained["other"] / "family.safetensors", folder)
    with pytest.raises(RunError, match=r"family\.safetensors is damaged .*result\.json names"):
        evaluate(folder)
    run = Run.open(folder)  # trained anew, and finished so
    run.finish(run.result, {"family.safetensors": files.read_header(run.family_file)["checksum"]})
    (record,) = evaluate(folder)
    assert len(calls) == 2
    truth = Independent(folder)
    assert len(record.rows) == 1
    check_row(record.rows[0], truth)


def damage(file: Path, how: str) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.unlink()  # what was read may be mapped from it
    file.write_bytes({"bit": content, "cut": content[:-5], "empty": b"", "foreign": b"{}"}[how])


@pytest.mark.parametrize("how", ["bit", "cut", "empty", "foreign"])
@pytest.mark.parametrize("name", ["evaluation.json", "predictions.safetensors"])
def test_what_is_damaged_is_named_and_can_be_made_again(
    name: str, how: str, runs: Callable[..., list[Path]], calls: list[int]
) -> None:
    (folder,) = runs("line")
    (first,) = evaluate(folder, grid=(0.0,))
    measured, file = len(calls), folder / name
    damage(file, how)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(RunError, match=rf"{file} is damaged \(.+\): remove it"):
        evaluate(folder, grid=(0.0,))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    file.unlink()
    (second,) = evaluate(folder, grid=(0.0,))
    assert len(calls) == measured * 2
    assert second.rows == first.rows
    assert ss.Evaluation.load(folder) == second
    assert second.examples == first.examples
    assert second.examples is not None


def test_an_evaluation_of_another_version_is_refused(runs: Callable[..., list[Path]]) -> None:
    (folder,) = runs("line")
    evaluate(folder, grid=())
    resealed(folder / "evaluation.json", lambda values: values.update(schema=0))
    with pytest.raises(RunError, match=r"evaluation\.json has schema 0, this version reads 2: remove it"):
        evaluate(folder, grid=())


def test_where_it_went_on_is_noted_and_a_precision_that_is_asked_for_is_kept(
    runs: Callable[..., list[Path]], calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder,) = runs("line")
    (first,) = evaluate(folder, grid=())
    assert "later" not in first.environment
    monkeypatch.setattr("subspaces.experiments.training.environment.processor", lambda: "another machine")
    for alpha in (0.1, 0.2):
        (record,) = evaluate(folder, grid=(alpha,), precision="float32")
    assert record.environment["hardware"] == first.environment["hardware"]
    assert [later["hardware"] for later in record.environment["later"]] == ["another machine"]
    assert len(calls) == 5
    (record,) = evaluate(folder, grid=(), precision="bfloat16")
    assert len(calls) == 6
    assert len(record.rows) == 3
    assert record.environment["execution"]["precision"] == "bfloat16"
    evaluate(folder, grid=())
    assert len(calls) == 6


def test_progress_counts_points_and_cells(runs: Callable[..., list[Path]]) -> None:
    (folder,) = runs("curve")
    seen: list[tuple[str, int, int]] = []
    evaluate(folder, grid=(0.0,), plane=True, cells=2, progress=lambda *step: seen.append(step))
    name = folder.name
    assert seen == [(name, done, 3) for done in (0, 2, 3)] + [(f"{name}: plane", done, 4) for done in range(5)]


def test_a_folder_may_be_given_another_name(runs: Callable[..., list[Path]], calls: list[int], tmp_path: Path) -> None:
    (folder,) = runs("curve")
    (first,) = evaluate(folder, grid=(0.0,))
    renamed = tmp_path / "renamed"
    shutil.copytree(folder, renamed)
    (again,) = evaluate(renamed, grid=(0.0,))
    assert len(calls) == 3
    assert again.name == "renamed"
    assert again.rows == first.rows


def test_a_family_is_let_go_before_the_next_is_read(runs: Callable[..., list[Path]], monkeypatch) -> None:
    """On a GPU all families of a long list would not fit."""
    read: list[weakref.ref[ss.Subspace]] = []
    alive: list[int] = []
    load = storage.load

    def watched(*args: Any, **more: Any) -> ss.Subspace:
        gc.collect()
        alive.append(sum(one() is not None for one in read))
        family = load(*args, **more)
        read.append(weakref.ref(family))
        return family

    monkeypatch.setattr(storage, "load", watched)
    evaluate(*runs("line", "curve", "simplex"), grid=(0.0,), triangle=0, random=0)
    assert alive == [0, 0, 0]
