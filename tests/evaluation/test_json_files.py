"""JSON files for people and programs, and lines of JSON in which damage is found."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from subspaces.core.storage import FileError
from subspaces.evaluation import files


@dataclasses.dataclass
class Record:
    a: Any
    b: dict[str, Any]


def test_numbers_that_json_does_not_have_are_objects_that_name_them():
    value = {"a": [[1, 2.5], {"b": math.inf}], "c": {"d": None, "e": "ω"}, "f": [True, "float"]}
    found = json.loads(files.to_json(value))
    assert found == {**value, "a": [[1, 2.5], {"b": {"float": "inf"}}]}
    record = json.loads(files.to_json(Record((1, math.nan), {"x": 1e-300})))
    assert record == {"a": [1, {"float": "nan"}], "b": {"x": 1e-300}}


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


@pytest.mark.parametrize(
    ("line", "message"), [(b"[]", "line 1: expected an object, found a list"), (b"[" * 10**5, "recursion"), (None, "")]
)
def test_what_are_no_lines(line: bytes | None, message: str, tmp_path: Path):
    path = tmp_path / "lines"
    path.mkdir() if line is None else path.write_bytes(line + b"\n")
    with pytest.raises(FileError, match=message or "it is not a file"):
        files.read_lines(path, "remove it")
