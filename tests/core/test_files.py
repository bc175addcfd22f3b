"""Files are whole or not there."""

import errno
import json
import os
import resource
import stat
from pathlib import Path

import pytest
import torch

from subspaces.core import files, locks


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


def test_the_content_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A name that points to what is still in the memory of the system is an empty file after a power cut."""
    calls: list[tuple[str, int, int]] = []
    sync, replace = os.fsync, os.replace

    def note(what: str, file: int | str | Path) -> None:
        status = os.stat(file)
        calls.append((what, status.st_ino, status.st_size))

    def syncing(descriptor: int) -> None:
        note("sync", descriptor)
        sync(descriptor)

    def replacing(source: str | Path, target: str | Path) -> None:
        note("replace", source)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", replacing)
    files.write(tmp_path / "file", b"all of it")
    files.write_json(tmp_path / "value.json", [1])
    for name in ("file", "value.json"):
        status = (tmp_path / name).stat()
        own = [(what, size) for what, place, size in calls if place == status.st_ino]
        assert own == [("sync", status.st_size), ("replace", status.st_size)]


def test_a_disk_that_is_full_is_named_with_the_file(tmp_path: Path):
    path = tmp_path / "state.safetensors"
    files.write(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match=r"could not be written, make room on the disk.*state\.safetensors") as caught:
            files.write(path, bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state.safetensors"]


def test_what_cannot_be_added_names_the_file(tmp_path: Path):
    files.append(tmp_path / "log", b"one\n")
    files.append(tmp_path / "log", b"two\n")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"
    os.symlink("/dev/full", tmp_path / "full")
    with pytest.raises(OSError, match=r"No space left on device: could not be written.*full"):
        files.append(tmp_path / "full", b"three\n")


def test_tensors_come_back_with_their_header(tmp_path: Path):
    path = tmp_path / "file.safetensors"
    tensors = {"b": torch.arange(5), "a": torch.tensor(2.5), "empty": torch.zeros(0, 3), "yes": torch.tensor([True])}
    found = files.write_tensors(path, tensors, {"key": "ω", "other": "{}"})
    header, read = files.read_tensors(path)
    files.check(header, read)
    assert (header["key"], header["other"], header["checksum"]) == ("ω", "{}", found)
    assert files.read_header(path) == header
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) and read[name].dtype == tensors[name].dtype for name in read)


@pytest.mark.parametrize("other", [{"a": torch.ones(3)}, {"b": torch.zeros(3)}, {"a": torch.zeros(3, 1)}, {}])
def test_other_tensors_do_not_fit_the_header(tmp_path: Path, other: dict[str, torch.Tensor]):
    files.write_tensors(tmp_path / "file", {"a": torch.zeros(3)}, {"key": "value"})
    header = files.read_header(tmp_path / "file")
    files.check(header, {"a": torch.zeros(3)})
    with pytest.raises(files.DamageError, match="checksum"):
        files.check(header, other)
    with pytest.raises(files.DamageError, match="checksum"):
        files.check({**header, "key": "another"}, {"a": torch.zeros(3)})


# What killed processes leave


def test_only_what_no_living_process_writes_is_swept(tmp_path: Path):
    left = [".a.json.0123abcd.partial", ".a.json.lock", ".a.json.0123456789abcdef.lock"]
    others = ["a.json", ".lock", ".a.partial", ".a.lock", ".a.json.0123abcX.partial"]
    for name in others:
        (tmp_path / name).touch()
    for name in left:
        with open(tmp_path / name, "xb") as file:
            assert locks.hold(file.fileno())  # as its writer does
            files.sweep(tmp_path)
            assert (tmp_path / name).exists()
        files.sweep(tmp_path)
    assert set(os.listdir(tmp_path)) == set(others)


def test_a_file_is_held_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plain, seen = os.fsync, []

    def fsync(file: int) -> None:
        files.sweep(tmp_path)
        seen.extend(os.listdir(tmp_path))
        plain(file)

    monkeypatch.setattr(os, "fsync", fsync)
    files.write(tmp_path / "file", b"content")
    (partial,) = seen
    assert partial.endswith(".partial")
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_is_swept_before_it_is_held_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plain, seen = os.fsync, []

    def fsync(file: int) -> None:
        plain(file)
        if not seen:
            (partial,) = tmp_path.iterdir()
            partial.unlink()
            seen.append(partial)

    monkeypatch.setattr(os, "fsync", fsync)
    files.write(tmp_path / "file", b"content")
    assert seen
    assert (tmp_path / "file").read_bytes() == b"content"
    assert os.listdir(tmp_path) == ["file"]


def test_folders_that_were_made_for_nothing_are_removed(tmp_path: Path):
    with files.made(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert os.listdir(tmp_path) == []
    (tmp_path / "a").mkdir()
    with pytest.raises(KeyError), files.made(tmp_path / "a" / "b" / "c"):
        raise KeyError
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]
    with files.made(tmp_path / "a" / "b" / "c"):
        (tmp_path / "a" / "b" / "file").touch()
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "file"]


def test_a_folder_that_cannot_be_made_leaves_no_part_of_its_path(tmp_path: Path):
    with pytest.raises(OSError, match="too long"), files.made(tmp_path / "a" / ("b" * 300)):
        pass
    assert os.listdir(tmp_path) == []


def test_what_is_left_of_a_file_goes_when_it_is_written_again(tmp_path: Path):
    for name in (".r.html.0123abcd.partial", ".other.html.0123abcd.partial"):
        (tmp_path / name).touch()
    files.write(tmp_path / "r.html", b"page")
    assert sorted(os.listdir(tmp_path)) == [".other.html.0123abcd.partial", "r.html"]


def test_tensors_are_aligned_and_their_names_count(tmp_path: Path):
    for name in ("a", "ab", "abc", "abcd"):
        files.write_tensors(tmp_path / "file", {name: torch.ones(2)}, {})
        assert int.from_bytes((tmp_path / "file").read_bytes()[:8], "little") % 8 == 0
    one = torch.ones(2)
    assert files.checksum({}, {"a": one}) != files.checksum({}, {"b": one})


def test_what_is_no_file_is_not_opened(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(files.DamageError, match="it is not a file"):
            files.read_tensors(tmp_path / name)


def test_an_interruption_that_looks_like_damage_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C within safetensors becomes an error of its own."""
    files.write_tensors(tmp_path / "file", {"a": torch.ones(2)}, {"key": "value"})
    opened, fails = files.safe_open, [RuntimeError("could not determine the shape of object type")]

    def once(*given: object, **options: object) -> object:
        if fails:
            raise fails.pop()
        return opened(*given, **options)

    monkeypatch.setattr(files, "safe_open", once)
    assert torch.equal(files.read_tensors(tmp_path / "file")[1]["a"], torch.ones(2))
    assert not fails


def test_what_is_brought_to_the_disk_is_named_where_it_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files.append(tmp_path / "log", b"line")
    files.sync(tmp_path / "log")

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*make room on the disk.*log"):
        files.sync(tmp_path / "log")
