"""The record: what is written is read, and what is not a record is refused with the place that is wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import resealed, unsealed

from subspaces.evaluation.record import (
    Check,
    Choice,
    Corner,
    Drawn,
    Plane,
    Record,
    Reliability,
    RiskCoverage,
    Row,
)
from subspaces.training.runs import RunError

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
    plane = Plane("p", corners, [0.0, 0.5, 1.0], [0.0, 1.0], cells, cells, "test", 2, 0, [path])
    dataset = {"name": "digits", "classes": ["0"], "splits": {"test": 2}}
    pair = row([0.0, 1.0], average="logits", diversity={"tv": 0.5})
    choice = Choice("pair", "accuracy", "test", True, [0.0, 1.0], {"test": dict(METRICS)})
    check = Check("points", [[0.0]], "test", 128, [0.5], [1.0])
    rows = [row([0.0]), row([[0.2, 0.8]]), pair]
    return Record("run", {"name": "digits-line"}, {}, dataset, {"images": 0}, rows, [plane], [choice], [check])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    record().write(tmp_path)
    assert Record.read(tmp_path) == record()


DAMAGES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda values: values.pop("rows"), "'rows'"),
    (lambda values: values.update(more=1), "unexpected keyword argument 'more'"),
    (lambda values: values.update(environment=None), "environment is None"),
    (lambda values: values["dataset"].pop("splits"), "dataset has no splits"),
    (lambda values: values["rows"][1].update(alphas=None), r"rows\[1\]\.alphas is None"),
    (lambda values: values["rows"][1].update(alphas=[]), r"rows\[1\] has no alphas"),
    (lambda values: values["rows"][0].update(role="lost"), r"rows\[0\]\.role is 'lost'"),
    (lambda values: values["rows"][0]["metrics"].update(nll="1.0"), r"rows\[0\]\.metrics\.nll is '1\.0'"),
    (lambda values: values["rows"][0]["metrics"].update(nll=True), r"rows\[0\]\.metrics\.nll is True"),
    (lambda values: values["rows"][2]["metrics"].pop("nll"), r"rows\[2\] has other metrics than the first row"),
    (lambda values: values["rows"][0]["reliability"]["count"].pop(), r"rows\[0\]\.reliability has columns of diff"),
    (lambda values: values["rows"][0].update(reliability=[]), r"rows\[0\]\.reliability is \[\]"),
    (lambda values: values["planes"][0]["accuracy"].pop(), r"planes\[0\] has not 2 lines of 3 cells"),
    (lambda values: values["planes"][0]["nll"][1].pop(), r"planes\[0\] has not 2 lines of 3 cells"),
    (lambda values: values["planes"][0]["nll"][1].__setitem__(0, "x"), r"planes\[0\]\.nll\[1\]\[0\] is 'x'"),
    (lambda values: values["choices"][0].update(on_test="yes"), r"choices\[0\]\.on_test is 'yes'"),
    (lambda values: values["checks"][0].update(at=[0.0]), r"checks\[0\]\.at\[0\] is 0\.0"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_what_is_damaged_is_named(damage: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    record().write(tmp_path)
    path = tmp_path / "evaluation.json"
    whole = unsealed(path)
    resealed(path, damage)
    assert unsealed(path) != whole
    with pytest.raises(RunError, match=rf"evaluation\.json is damaged \(.*{message}.*\): remove it and evaluate anew"):
        Record.read(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", "1"])
def test_what_is_no_record_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text(text)
    with pytest.raises(RunError, match=r"evaluation\.json is damaged"):
        Record.read(tmp_path)


def test_another_schema_is_said_to_be_one(tmp_path: Path) -> None:
    record().write(tmp_path)
    resealed(tmp_path / "evaluation.json", lambda values: values.update(schema=2))
    with pytest.raises(RunError, match="has schema 2, this version reads 1: remove it and evaluate anew"):
        Record.read(tmp_path)
