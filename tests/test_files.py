"""Files are whole or not there."""

import json
import os
import stat
from pathlib import Path

import pytest

from subspaces import files


def test_content_is_written_and_replaced(tmp_path: Path):
    path = tmp_path / "file"
    files.write(path, b"first")
    assert path.read_bytes() == b"first"
    files.write(path, b"")
    assert path.read_bytes() == b""
    assert os.listdir(tmp_path) == ["file"]


def test_a_reader_keeps_the_old_content(tmp_path: Path):
    path = tmp_path / "file"
    files.write(path, b"old")
    with open(path, "rb") as reader:
        files.write(path, b"new and longer")
        assert reader.read() == b"old"


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    path = tmp_path / "file"
    files.write(path, b"old")
    with pytest.raises(TypeError):
        files.write(path, "a string")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        files.write_json(path, {"a": object()})
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_target_that_cannot_be_replaced_leaves_nothing(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        files.write(tmp_path / "folder", b"content")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_missing_folder_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        files.write(tmp_path / "none" / "file", b"content")


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_permissions_are_those_of_any_new_file(tmp_path: Path, mask: int):
    before = os.umask(mask)
    try:
        files.write(tmp_path / "file", b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


def test_json_is_for_people_and_programs(tmp_path: Path):
    path = tmp_path / "value.json"
    files.write_json(path, {"a": [1, None], "b": "ω"})
    text = path.read_text()
    assert json.loads(text) == {"a": [1, None], "b": "ω"}
    assert text.endswith("}\n")
    assert len(text.splitlines()) > 3
