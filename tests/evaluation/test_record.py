"""The record: what is written is read, and what is not a record is refused with the place that is wrong."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import resealed

from subspaces.evaluation.record import (
    Answered,
    Check,
    Choice,
    Corner,
    Description,
    Drawn,
    Examples,
    Outliers,
    Plane,
    Record,
    Reliability,
    RiskCoverage,
    Row,
    Shift,
)
from subspaces.experiments.training.runs import RunError

METRICS = {"accuracy": 0.5, "nll": 2}


def row(alphas: list[Any], **more: Any) -> Row:
    bins = Reliability([0, 2], [None, 0.75], [None, 0.5])
    curve = RiskCoverage([0.5, 1.0], [0.0, 0.5])
    kind = "point" if len(alphas) == 1 else "ensemble"
    return Row(kind, "along", alphas, [[0.5, 0.5]] * len(alphas), "test", 2, METRICS, bins, curve, **more)


def record() -> Record:
    corners = [Corner("a", 0.0, 0.0), Corner("b", 1.0, 0.0), Corner("c", 0.0, 1.0)]
    path = Drawn("a", "path", [0.0, 1.0], [0.0, 0.0], [0.0, 0.0])
    cells: list[list[float | None]] = [[0.5, None, 1.0], [0.0, 0.0, 0.0]]
    plane = Plane("p", corners, [0.0, 0.5, 1.0], [0.0, 1.0], {"accuracy": cells, "nll": cells}, "test", 2, 0, [path])
    dataset = {"name": "digits", "classes": ["0"], "splits": {"test": 2}}
    pair = row([0.0, 1.0], average="logits", diversity={"tv": 0.5})
    choice = Choice("pair", "accuracy", "test", True, [0.0, 1.0], {"test": dict(METRICS)})
    check = Check("points", [[0.0]], "test", 128, {"accuracy": [0.5], "nll": [1.0]})
    told_apart = dataclasses.replace(row([0.5]), metrics={"auroc": 0.75})
    return Record(
        name="run",
        shape={"kind": "interval", "vertices": 2, "type": "Line"},
        task="classification",
        metrics=[
            Description("accuracy", "accuracy", "what is right", lower_is_better=False, percent=True),
            Description("nll", "NLL", "how improbable that was"),
        ],
        answers=[Answered("pair", "ensemble of 0 and 1", 2, "along", [0.0, 1.0], "probabilities")],
        environment={},
        dataset=dataset,
        statistics={"images": 0},
        recipe={"name": "digits-line"},
        rows=[row([0.0], scaled={**METRICS, "temperature": 1.5}), row([[0.2, 0.8]], networks=3), pair],
        planes=[plane],
        choices=[choice],
        checks=[check],
        examples=Examples("test", [0.0, 0.5], [1, 1, 2], "AAE=", [3], [7], [[1], [2]], [[0.5], [0.75]]),
        shifts=[Shift("fog", 3, "weather", "made", 2, [row([0.5])])],
        outliers=[Outliers("mnist", 4, [Description("auroc", "AUROC", "how well")], [told_apart])],
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "mine.json"):  # a run folder, and a file of the user's
        record().write(target)
        assert Record.read(target) == record()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evaluation.json", "mine.json"]


def test_a_family_of_the_users_own_has_no_recipe_and_few_parts(tmp_path: Path) -> None:
    made = dataclasses.replace(record(), recipe=None, examples=None, planes=[], choices=[], checks=[])
    made.rows = [dataclasses.replace(row([0.5]), reliability=None, risk_coverage=None)]
    made.write(tmp_path / "mine.json")
    assert Record.read(tmp_path / "mine.json") == made
    assert made.key == ""


def test_a_record_from_before_shifts_is_read(tmp_path: Path) -> None:
    record().write(tmp_path)
    resealed(tmp_path / "evaluation.json", lambda values: [values.pop(name) for name in ("shifts", "outliers")])
    assert Record.read(tmp_path) == dataclasses.replace(record(), shifts=[], outliers=[])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_strict_json(value: float, tmp_path: Path) -> None:
    made = record()
    made.rows = [dataclasses.replace(one, metrics={"accuracy": 0.5, "nll": value}) for one in made.rows]
    made.planes[0].values["nll"][0][0] = value
    made.write(tmp_path)

    def refused(name: str) -> None:
        raise ValueError(name)

    json.loads((tmp_path / "evaluation.json").read_text(), parse_constant=refused)
    found = Record.read(tmp_path)
    assert repr(found) == repr(made)  # which tells nan from nan, where == does not
    assert repr(found.rows[0].nll) == repr(value)


DAMAGES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda values: values.pop("rows"), "'rows'"),
    (lambda values: values.update(more=1), "unexpected keyword argument 'more'"),
    (lambda values: values.update(environment=None), "environment is None"),
    (lambda values: values["dataset"].pop("splits"), "dataset has no splits"),
    (lambda values: values["dataset"].update(classes=3), r"dataset\.classes is 3"),
    (lambda values: values["dataset"].update(splits=[]), r"dataset\.splits is \[\]"),
    (lambda values: values["shape"].update(kind={}), r"shape\.kind is {}"),
    (lambda values: values["statistics"].update(images=float("nan")), r"statistics\.images is nan"),
    (lambda values: values["environment"].update(execution="x"), r"environment\.execution is 'x'"),
    (lambda values: values["metrics"][0].update(goal=10**400), "a number of 401 digits"),
    (lambda values: values["rows"][0].update(alphas=[float("nan")]), r"rows\[0\]\.alphas\[0\] is nan"),
    (lambda values: values["rows"][1].update(alphas=[[]]), r"rows\[1\]\.alphas\[0\] is \[\]"),
    (lambda values: values["rows"][1].update(alphas=None), r"rows\[1\]\.alphas is None"),
    (lambda values: values["rows"][1].update(alphas=[]), r"rows\[1\] has no alphas"),
    (lambda values: values["rows"][0].update(role=3), r"rows\[0\]\.role is 3"),
    (lambda values: values["rows"][0]["metrics"].update(nll="1.0"), r"rows\[0\]\.metrics\.nll is '1\.0'"),
    (lambda values: values["rows"][0]["metrics"].update(nll=True), r"rows\[0\]\.metrics\.nll is True"),
    (lambda values: values["rows"][2]["metrics"].pop("nll"), r"rows\[2\] has other metrics than the first row"),
    (lambda values: values["rows"][0]["reliability"]["count"].pop(), r"rows\[0\]\.reliability has columns of diff"),
    (lambda values: values["rows"][0].update(reliability=[]), r"rows\[0\]\.reliability is \[\]"),
    (lambda values: values["rows"][0].update(kind="lost"), r"rows\[0\]\.kind is 'lost'"),
    (lambda values: values["rows"][0].update(networks="2"), r"rows\[0\]\.networks is '2'"),
    (lambda values: values["rows"][0].update(scaled=[1]), r"rows\[0\]\.scaled is \[1\]"),
    (lambda values: values["rows"][0]["metrics"].update(nll={"float": "nil"}), r"rows\[0\]\.metrics\.nll is"),
    (lambda values: values["metrics"][0].update(percent=None), r"metrics\[0\]\.percent is None"),
    (lambda values: values["answers"][0].pop("words"), "'words'"),
    (lambda values: values["answers"][0].update(alphas=0.5), r"answers\[0\]\.alphas is 0\.5"),
    (lambda values: values["planes"][0]["values"]["accuracy"].pop(), r"planes\[0\] has not 2 lines of 3 cells"),
    (lambda values: values["planes"][0]["values"]["nll"][1].pop(), r"planes\[0\] has not 2 lines of 3 cells"),
    (lambda values: values["planes"][0]["values"]["nll"][1].__setitem__(0, "x"), r"values\.nll\[1\]\[0\] is 'x'"),
    (lambda values: values["choices"][0].update(on_test="yes"), r"choices\[0\]\.on_test is 'yes'"),
    (lambda values: values["checks"][0].update(at=[0.0]), r"checks\[0\]\.at\[0\] is 0\.0"),
    (lambda values: values["checks"][0]["values"].update(nll=1), r"checks\[0\]\.values\.nll is 1"),
    (lambda values: values["examples"]["alphas"].pop(), r"examples\.predicted does not fit 1 images and 1 points"),
    (lambda values: values["examples"]["labels"].append(1), r"examples\.indices does not fit 2 images and 2 points"),
    (lambda values: values["examples"]["confidence"][1].pop(), r"examples\.confidence does not fit 1 images"),
    (lambda values: values["examples"]["size"].pop(), r"examples\.size does not fit"),
    (lambda values: values["examples"].update(images=3), r"examples\.images is 3"),
    (lambda values: values["examples"].update(images="AAEAAAE="), r"examples\.images does not fit 1 images"),
    (lambda values: values["examples"].pop("labels"), "'labels'"),
    (lambda values: values["shifts"][0].update(severity="3"), r"shifts\[0\]\.severity is '3'"),
    (lambda values: values["shifts"][0].update(rows=[]), r"shifts\[0\] has no rows"),
    (lambda values: values["shifts"][0]["rows"][0].update(alphas=[]), r"shifts\[0\]\.rows\[0\] has no alphas"),
    (lambda values: values["shifts"][0]["rows"][0].update(metrics={}), r"shifts\[0\]\.rows\[0\] has other metrics"),
    (lambda values: values["shifts"].append(values["shifts"][0]), r"shifts\[1\] is there twice"),
    (lambda values: values["outliers"][0]["rows"][0]["metrics"].update(nll=1), r"outliers\[0\]\.rows\[0\] has other"),
    (lambda values: values["outliers"][0]["metrics"][0].pop("label"), "'label'"),
    (lambda values: values["outliers"].append(values["outliers"][0]), r"outliers\[1\] is there twice"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_what_is_damaged_is_named(damage: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    record().write(tmp_path)
    path = tmp_path / "evaluation.json"
    whole = path.read_bytes()
    resealed(path, damage)
    assert path.read_bytes() != whole
    with pytest.raises(RunError, match=rf"evaluation\.json is damaged \(.*{message}.*\): remove it and evaluate anew"):
        Record.read(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", "1"])
def test_what_is_no_record_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text(text)
    with pytest.raises(RunError, match=r"evaluation\.json is damaged"):
        Record.read(tmp_path)


def test_another_schema_is_said_to_be_one(tmp_path: Path) -> None:
    record().write(tmp_path)
    resealed(tmp_path / "evaluation.json", lambda values: values.update(schema=1))
    with pytest.raises(RunError, match="has schema 1, this version reads 2: remove it and evaluate anew"):
        Record.read(tmp_path)
