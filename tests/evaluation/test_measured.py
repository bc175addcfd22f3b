"""The shelf of measurements: what is found, what another process adds, and how often the file is read."""

from pathlib import Path

import pytest

from subspaces.evaluation.measured import Measured, Shelf


def measured(number: int, precision: str = "float32") -> Measured:
    environment = {"execution": {"precision": precision}}
    return Measured({"number": number}, environment, {"test": 10}, {"test": {"accuracy": number / 10}})


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


def test_the_file_is_read_once_however_often_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "measured.json"
    Shelf(path).add(measured(1))
    reads = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda self: reads.append(self) or read_bytes(self))
    shelf = Shelf(path)
    for _ in range(5):
        assert shelf.find({"number": 1}) == measured(1)
    assert reads == [path]


@pytest.mark.parametrize("content", ["", "[]", '{"schema": 0, "measured": []}', '{"schema": 1, "measured": [{}]}'])
def test_a_file_that_cannot_be_used_has_nothing_in_it(content, tmp_path: Path):
    path = tmp_path / "measured.json"
    path.write_text(content)
    assert Shelf(path).read() == []
    Shelf(path).add(measured(1))
    assert Shelf(path).read() == [measured(1)]
