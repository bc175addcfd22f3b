"""The shelf of measurements: what is found, what another process adds, and how often the file is read."""

from pathlib import Path
from typing import Any

import pytest
from helpers import resealed

import subspaces as ss
from subspaces.evaluation.metrics import of_task
from subspaces.experiments.evaluating.cache import Measured, Shelf


def measured(number: int, precision: str = "float32") -> Measured:
    environment = {"execution": {"precision": precision}}
    metrics = {metric.name: number / 10 for metric in of_task("classification")}
    return Measured({"number": number}, environment, {"test": 10}, {"test": metrics})


def test_what_lacks_a_metric_of_today_is_measured_again(tmp_path: Path):
    shelf = Shelf(tmp_path / "measured.json")
    found = measured(1)
    found.metrics["test"].pop("brier")
    shelf.add(found)
    assert len(shelf.read()) == 1
    assert shelf.find({"number": 1}) is None


def test_what_is_added_is_found_by_its_key_and_precision(tmp_path: Path):
    shelf = Shelf(tmp_path / "measured.json")
    assert shelf.find({"number": 1}) is None
    for number in (1, 2):
        shelf.add(measured(number))
    assert shelf.find({"number": 2}) == measured(2)
    assert shelf.find({"number": 2}, "float32") == measured(2)
    assert shelf.find({"number": 2}, "bfloat16") is None
    shelf.add(measured(2, "bfloat16"))
    assert [each.key["number"] for each in shelf.read()] == [1, 2]
    assert shelf.find({"number": 2}, "bfloat16") == measured(2, "bfloat16")


def test_what_another_process_adds_is_seen_and_kept(tmp_path: Path):
    ours, theirs = (Shelf(tmp_path / "measured.json") for _ in range(2))
    ours.add(measured(1))
    assert theirs.find({"number": 1}) == measured(1)
    theirs.add(measured(2))
    ours.add(measured(3))
    assert [each.key["number"] for each in theirs.read()] == [1, 2, 3]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"schema": 1, "measured": []}', b"\xff"])
def test_a_damaged_file_is_named_and_kept(content: bytes, tmp_path: Path):
    path = tmp_path / "measured.json"
    path.write_bytes(content)
    for use in (lambda: Shelf(path).read(), lambda: Shelf(path).find({}), lambda: Shelf(path).add(measured(1))):
        with pytest.raises(ss.FileError, match=r"measured\.json is damaged .*: remove it, and what it holds"):
            use()
    assert path.read_bytes() == content


@pytest.mark.parametrize("wrong", [{"measured": [{}]}, {"measured": [3]}, {"measured": {}}])
def test_a_sealed_file_of_something_else_is_refused(wrong: dict[str, Any], tmp_path: Path):
    path = tmp_path / "measured.json"
    Shelf(path).add(measured(1))
    resealed(path, lambda values: values.update(wrong))
    with pytest.raises(ss.FileError, match=r"measured\.json is damaged"):
        Shelf(path).read()
