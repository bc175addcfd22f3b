"""Evaluations as files: what is saved is loaded, and what is no evaluation is refused with the place that is wrong."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers import resealed

import subspaces as ss
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.rows import (
    Answered,
    Choice,
    Corner,
    Drawn,
    Examples,
    Plane,
    Reliability,
    RiskCoverage,
    Row,
    Training,
)

METRICS = {"accuracy": 0.5, "nll": 2}


def row(alphas: list[Any], **more: Any) -> Row:
    bins = Reliability([0, 2], [None, 0.75], [None, 0.5])
    curve = RiskCoverage([0.5, 1.0], [0.0, 0.5])
    kind = "point" if len(alphas) == 1 else "ensemble"
    data = more.pop("data", "test")
    return Row(kind, "along", alphas, [[0.5, 0.5]] * len(alphas), data, 2, METRICS, bins, curve, **more)


def evaluation() -> Evaluation:
    corners = [Corner("a", 0.0, 0.0), Corner("b", 1.0, 0.0), Corner("c", 0.0, 1.0)]
    path = Drawn("a", "path", [0.0, 1.0], [0.0, 0.0], [0.0, 0.0])
    cells: list[list[float | None]] = [[0.5, None, 1.0], [0.0, 0.0, 0.0]]
    plane = Plane("p", corners, [0.0, 0.5, 1.0], [0.0, 1.0], {"accuracy": cells, "nll": cells}, "test", 2, 0, [path])
    dataset = {"name": "digits", "classes": ["0"], "splits": {"test": 2}}
    pair = row([0.0, 1.0], average="logits", diversity={"tv": 0.5})
    choice = Choice("pair", "accuracy", "test", True, [0.0, 1.0], {"test": dict(METRICS)})
    shifted = row([0.5], severity=3, group="weather", source="made", data="fog")
    told_apart = dataclasses.replace(row([0.5], group="outliers", source="data", data="mnist"), metrics={"auroc": 0.75})
    return Evaluation(
        name="run",
        shape={"kind": "interval", "vertices": 2, "type": "Line"},
        task="classification",
        metrics=[
            Metric("accuracy", "accuracy", "what is right", lower_is_better=False, percent=True),
            Metric("nll", "NLL", "how improbable that was"),
        ],
        answers=[Answered("pair", "ensemble of 0 and 1", 2, "along", [0.0, 1.0], "probabilities")],
        environment={},
        dataset=dataset,
        statistics={"images": 0},
        recipe={"name": "digits-line"},
        rows=[
            row([0.0], scaled={**METRICS, "temperature": 1.5}),
            row([[0.2, 0.8]], networks=3),
            pair,
            shifted,
            told_apart,
        ],
        planes=[plane],
        choices=[choice],
        examples=Examples("test", [0.0, 0.5], [1, 1, 2], "AAE=", [3], [7], [[1], [2]], [[0.5], [0.75]]),
    )


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    training = Training(
        "g", "l", {"a": 1}, {}, [1, "x"], [0], "d", "f", "n", 0.0, 1, 2, 1.0, [{"epoch": 1}], None, "", {}
    )
    few = dataclasses.replace(evaluation(), recipe=None, examples=None, planes=[], choices=[])
    for made in (evaluation(), few, dataclasses.replace(few, training=training, command="subspaces evaluate x")):
        for target in (tmp_path, tmp_path / "mine.json"):  # a run folder, and a file of the user's
            made.save(target)
            assert Evaluation.load(target) == made
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evaluation.json", "mine.json"]


def test_numbers_that_are_not_finite_are_kept(tmp_path: Path) -> None:
    made = evaluation()
    for value in (math.nan, math.inf, -math.inf):
        made.rows = [dataclasses.replace(one, metrics={"accuracy": 0.5, "nll": value}) for one in made.rows]
        made.planes[0].values["nll"][0][0] = value
        made.save(tmp_path)
        found = Evaluation.load(tmp_path)
        assert repr(found) == repr(made)  # which tells nan from nan, where == does not


def test_the_frame_has_a_row_for_each_row() -> None:
    made = evaluation()
    frame = made.frame
    assert list(frame["data"]) == ["test", "test", "test", "fog", "mnist"]
    assert list(frame["severity"]) == [0, 0, 0, 3, 0]
    assert list(frame["group"]) == ["", "", "", "weather", "outliers"]
    assert frame["alphas"].tolist()[1:3] == [((0.2, 0.8),), (0.0, 1.0)]
    assert frame["alpha"].tolist()[0] == 0.0
    assert pd.isna(frame["nll"].iloc[-1])
    assert (frame["scaled_nll"].iloc[0], frame["temperature"].iloc[0], frame["tv"].iloc[2]) == (2, 1.5, 0.5)
    assert dataclasses.replace(made, rows=[]).frame.empty
    assert made.splits == ["test"]


DAMAGES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda values: values.pop("dataset"), "'dataset'"),
    (lambda values: values.update(more=1), "'more'"),
    (lambda values: values["rows"].append(3), "a Row: 'int' object"),
    (lambda values: values["answers"][0].pop("words"), "'words'"),
    (lambda values: values["planes"][0].update(more=1), "'more'"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_what_is_damaged_is_named(damage: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    evaluation().save(tmp_path)
    resealed(tmp_path / "evaluation.json", damage)
    with pytest.raises(ss.FileError, match=rf"evaluation\.json is damaged \(.*{message}.*\): remove it and evaluate"):
        Evaluation.load(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", "1", "[" * 10**5])
def test_what_is_no_evaluation_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text(text)
    with pytest.raises(ss.FileError, match=r"evaluation\.json is damaged"):
        Evaluation.load(tmp_path)
    with pytest.raises(ss.FileError, match=r"has no evaluation\.json: run `subspaces evaluate"):
        Evaluation.load(tmp_path / "none")


def test_another_schema_is_said_to_be_one(tmp_path: Path) -> None:
    evaluation().save(tmp_path)
    resealed(tmp_path / "evaluation.json", lambda values: values.update(schema=1))
    with pytest.raises(ss.FileError, match="has schema 1, this version reads 3: remove it and evaluate anew"):
        Evaluation.load(tmp_path)
