"""What was measured is kept by its key: nothing is measured twice, by several processes either, and nothing is lost."""

import functools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import retrained
from evaluation_cases import Runs, about, evaluate
from helpers import unsealed
from processes import Pause, Worker

import subspaces as ss
from subspaces.evaluation import METRICS, Metric, average
from subspaces.evaluation.files import MEASUREMENTS as FILE
from subspaces.evaluation.predictor import Predictor
from subspaces.experiments.evaluating.evaluate import ensembles_in, evaluate_together
from subspaces.experiments.training import RunError, Stopped

Path_ = Callable[[str], Path]
GRID: dict[str, Any] = {"grid": (0.0, 0.2)}
ALL: dict[str, Any] = {**GRID, "plane": True, "cells": 2, "corruptions": ss.Corruptions(["fog"], [1, 3])}
NEW = {"statistics": {"statistics_batches": 1}, "precision": {"precision": "bfloat16"}, "metric": {}}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for every network that is measured on test examples or others, but for validation."""
    seen: list[int] = []
    outputs = Predictor.outputs

    def counted(self: Predictor, points: Any, data: Any, **how: Any) -> Any:
        seen.extend([1] * len(points) if data != "validation" else [])
        return outputs(self, points, data, **how)

    monkeypatch.setattr(Predictor, "outputs", counted)
    return seen


@pytest.fixture
def one(small: Path_, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that copies a small run of which nothing is measured."""
    return lambda name="curve", to="runs": retrained.unmeasured(small(name), tmp_path / to)


@pytest.fixture
def top3() -> Iterator[None]:
    """One more metric of runs."""
    METRICS.add(
        Metric("top3", "top-3", "among three", False, **average(lambda p, y: (p.logs.topk(3)[1] == y[:, None]).any(1)))
    )
    yield
    METRICS.remove("top3")


def content(found: ss.Evaluation) -> dict[str, Any]:
    """Return an evaluation without where and when it was made."""
    return {name: each for name, each in vars(found).items() if name not in ("environment", "training")}


def whole(folder: Path) -> dict[str, Any]:
    values = unsealed(folder / "evaluation.json")
    return {name: each for name, each in values.items() if name not in ("environment", "training")}


# Nothing is measured twice


def test_nothing_is_measured_twice_and_what_is_new_is_added(one: Any, calls: list[int]) -> None:
    folder = one()
    first = evaluate(folder, grid=(0.0, 0.1))[0]
    assert len(calls) == 5
    stamps = {name: (folder / name).stat().st_mtime_ns for name in ("evaluation.json", FILE)}
    assert evaluate(folder, grid=(0.0, 0.1), data="there is no such folder") == [first]
    assert (len(calls), stamps) == (5, {name: (folder / name).stat().st_mtime_ns for name in stamps})
    (more,) = evaluate(folder, grid=(0.2,))
    assert len(calls) == 7
    assert set(map(about, more.rows)) > set(map(about, first.rows))
    (folder / "evaluation.json").unlink()  # which is made of the measurements
    assert content(evaluate(folder, grid=(0.2,))[0]) == content(more)
    assert len(calls) == 7


@pytest.mark.parametrize("change", NEW)
def test_another_setting_throws_nothing_away(
    change: str, one: Any, calls: list[int], request: pytest.FixtureRequest
) -> None:
    """Neither other statistics, nor another precision, nor one more metric: planes and shifted data included."""
    folder, fresh = one(), one(to="fresh")
    (first,) = evaluate(folder, **ALL)
    if change == "metric":
        request.getfixturevalue("top3")
    calls.clear()
    (found,) = evaluate(folder, **ALL, **NEW[change])
    again = len(calls)
    (expected,) = evaluate(fresh, **ALL, **NEW[change])
    assert content(found) == content(expected)
    assert found.rows != first.rows
    assert found.planes == first.planes or change == "precision"
    if change == "metric":
        METRICS.remove("top3")
        assert again == 5  # points along the curve; what has not the metric is not measured again
    calls.clear()
    assert content(evaluate(folder, **GRID)[0]) == content(first)
    assert calls == []
    if change == "metric":
        METRICS.add(Metric("top3", "top-3", "", False))  # for the fixture


@pytest.mark.parametrize("change", ["family", "statistics", "precision"])
def test_what_was_made_otherwise_is_never_shown(change: str, one: Any) -> None:
    folder = one()
    evaluate(folder, **ALL)
    if change == "family":
        retrained.anew(folder)
    (fresh,) = evaluate(retrained.unmeasured(folder, folder.parent / "fresh"), grid=(0.0,), **NEW.get(change, {}))
    (found,) = evaluate(folder, grid=(0.0,), **NEW.get(change, {}))
    assert (found.rows, found.examples) == (fresh.rows, fresh.examples)
    assert (found.planes == []) == (change != "statistics")


# What was interrupted continues

INTERRUPTED = {"grid": (0.0, 0.1, 0.2), "triangle": 3, "random": 2, "plane": True, "cells": 3}
INTERRUPTED |= {"corruptions": ss.Corruptions(["fog"], [1, 2])}


@pytest.fixture(scope="module")
def uninterrupted(
    trained: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, Any]]:
    """What the evaluation of a run comes to, measured once."""

    @functools.cache
    def made(name: str) -> dict[str, Any]:
        folder = Path(shutil.copytree(trained[name], tmp_path_factory.mktemp("whole") / trained[name].name))
        evaluate(folder, **INTERRUPTED)
        return whole(folder)

    return made


class Breaks(Exception):
    """What a test stops an evaluation with."""


@pytest.mark.parametrize(
    ("name", "after", "stop"),
    [("curve", 4, "error"), ("curve", 10, "signal"), ("curve", 22, "error"), ("simplex", 10, "signal")],
)
def test_an_interrupted_evaluation_ends_like_one_that_was_not(
    name: str, after: int, stop: str, runs: Runs, uninterrupted: Any, calls: list[int]
) -> None:
    (folder,) = runs(name)
    expected = uninterrupted(name)
    calls.clear()

    def progress(*_: Any) -> None:
        if len(calls) >= after:
            if stop == "error":
                raise Breaks
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Breaks if stop == "error" else Stopped):
        evaluate(folder, **INTERRUPTED, progress=progress)
    evaluate(folder, **INTERRUPTED)
    assert len(calls) == {"curve": 7, "simplex": 15}[name] + 9 + 2 * {"curve": 7, "simplex": 6}[name]
    assert whole(folder) == expected


def counting(pause: Pause, calls: int) -> None:
    """Say so for each network that is asked, and pause after some."""
    plain = Predictor.outputs

    def outputs(self: Predictor, points: Any, data: Any, **how: Any) -> Any:
        for _ in points if data != "validation" else ():
            print("asked", flush=True)
            pause(calls)
        return plain(self, points, data, **how)

    Predictor.outputs = outputs  # type: ignore[method-assign]


def evaluates(pause: Pause, folder: Path, points: int) -> None:
    counting(pause, points)
    ss.evaluate(folder, device="cpu", progress=False, **INTERRUPTED)


def test_a_killed_evaluation_is_finished_by_a_process_that_waits_for_it(runs: Runs, uninterrupted: Any) -> None:
    (folder,) = runs("curve")
    expected = uninterrupted("curve")
    first = Worker(evaluates, folder, 9)
    while first.line() != "there\n":
        pass
    second = Worker(evaluates, folder, 0)
    assert second.line().startswith("waiting for")
    first.kill()
    assert second.end().count("asked") == 7 + 9 + 14 - 8
    assert whole(folder) == expected


# Files that are not as they were written


def test_a_damaged_evaluation_is_named_and_costs_no_measurement(one: Any, calls: list[int]) -> None:
    folder = one()
    (first,) = evaluate(folder, grid=(0.0,))
    file, measured = folder / "evaluation.json", len(calls)
    file.write_bytes(file.read_bytes().replace(b'"nll"', b'"nlm"', 1))
    with pytest.raises((RunError, ss.FileError), match=rf"{file} is damaged \(.+\): remove it"):
        evaluate(folder, grid=(0.0,))
    file.unlink()
    assert content(evaluate(folder, grid=(0.0,))[0]) == content(first)
    assert len(calls) == measured


def test_progress_counts_points_and_cells(one: Any) -> None:
    seen: list[tuple[str, int, int]] = []
    folder = one()
    evaluate(folder, grid=(0.0,), plane=True, cells=2, progress=lambda *step: seen.append(step))
    name = folder.name
    assert seen == [(name, done, 3) for done in (0, 2, 3)] + [(f"{name}: plane", done, 4) for done in range(5)]


# Files that several processes add to


def together(pause: Pause, groups: list[list[Path]], to: Path, calls: int = 0) -> None:
    counting(pause, calls)
    evaluate_together(groups, to=to, device="cpu", progress=False)


def test_ensembles_are_shared_and_leave_no_locks(runs: Runs, tmp_path: Path) -> None:
    standard, other, line = runs("standard", "other", "line")
    groups, to = [[standard, other], [other, line]], tmp_path / "to"
    first = Worker(together, groups, to, 2)
    assert [first.line(), first.line(), first.line()] == ["asked\n", "asked\n", "there\n"]
    second = Worker(together, groups, to)
    names = ", ".join(sorted((standard.name, other.name)))
    waiting = f"waiting for the ensemble of {names}, which process {first.pid} is working on\n"
    assert [second.line() for _ in range(3)] == ["asked\n", "asked\n", waiting]
    first.resume.set()
    assert (first.end(), second.end()) == ("", "")
    assert os.listdir(to) == ["ensembles.json"]
    assert len(ensembles_in(to / "ensembles.json")) == 2
    before = (to / "ensembles.json").stat().st_mtime_ns
    evaluate_together(groups, to=to, device="cpu", progress=False)
    assert (to / "ensembles.json").stat().st_mtime_ns == before
