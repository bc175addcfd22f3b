"""Files are whole or not there, and damage is found."""

import errno
import os
import resource
import stat
import tracemalloc
from pathlib import Path

import pytest
import torch

from subspaces.core import files


def test_content_is_written_and_replaced(tmp_path: Path):
    path = tmp_path / "file"
    files.write(path, b"old")
    with open(path, "rb") as reader:
        files.write(path, b"new", b" and longer")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new and longer"
    assert os.listdir(tmp_path) == ["file"]


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    path = tmp_path / "file"
    files.write(path, b"old")
    with pytest.raises(TypeError):
        files.write(path, "a string")  # type: ignore[arg-type]
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        files.write(tmp_path / "folder", b"content")
    with pytest.raises(FileNotFoundError):
        files.write(tmp_path / "none" / "file", b"content")
    assert path.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_permissions_are_those_of_any_new_file(tmp_path: Path, mask: int):
    before = os.umask(mask)
    try:
        files.write(tmp_path / "file", b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


def test_the_content_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A name of a file that is only in the memory of the system is an empty file after a power cut."""
    calls: list[tuple[str, int, int]] = []
    sync, replace = os.fsync, os.replace

    def note(what: str, file: int | str | Path) -> None:
        status = os.stat(file)
        calls.append((what, status.st_ino, status.st_size))

    monkeypatch.setattr(os, "fsync", lambda file: (note("sync", file), sync(file)))
    monkeypatch.setattr(os, "replace", lambda source, target: (note("replace", source), replace(source, target)))
    files.write(tmp_path / "file", b"all of it")
    files.write_tensors(tmp_path / "tensors", {"a": torch.ones(3)}, {})
    for name in ("file", "tensors"):
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
            files.write_tensors(path, {"a": torch.zeros(100_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state.safetensors"]


def test_appending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files.append(tmp_path / "log", b"one\n")
    files.append(tmp_path / "log", b"two\n")
    files.sync(tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"
    os.symlink("/dev/full", tmp_path / "full")
    with pytest.raises(OSError, match=r"No space left on device: could not be written.*full"):
        files.append(tmp_path / "full", b"three\n")

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*make room on the disk.*log"):
        files.sync(tmp_path / "log")


# Tensors


def test_tensors_come_back_with_their_header(tmp_path: Path):
    path = tmp_path / "file.safetensors"
    omega = torch.arange(6.0).view(2, 3)
    tensors = {"b": torch.arange(5), "a": torch.tensor(2.5), "empty": torch.zeros(0, 3), "yes": torch.tensor([True])}
    tensors |= {"row0": omega[0], "row1": omega[1], "half": torch.ones(3, dtype=torch.bfloat16)}
    found = files.write_tensors(path, tensors, {"key": "ω", "other": "{}"})
    header, read = files.read_tensors(path)
    files.check(header, read)
    assert header == {"key": "ω", "other": "{}", "checksum": found}
    assert files.read_header(path) == header
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) and read[name].dtype == tensors[name].dtype for name in read)
    content = path.read_bytes()
    assert int.from_bytes(content[:8], "little") % 8 == 0  # so that tensors are aligned
    files.write_tensors(path, dict(reversed(tensors.items())), {"other": "{}", "key": "ω"})
    assert path.read_bytes() == content


@pytest.mark.parametrize("other", [{"a": torch.ones(3)}, {"b": torch.zeros(3)}, {"a": torch.zeros(3, 1)}, {}])
def test_other_tensors_do_not_fit_the_header(tmp_path: Path, other: dict[str, torch.Tensor]):
    files.write_tensors(tmp_path / "file", {"a": torch.zeros(3)}, {"key": "value"})
    header = files.read_header(tmp_path / "file")
    files.check(header, {"a": torch.zeros(3)})
    for wrong in ((header, other), ({**header, "key": "another"}, {"a": torch.zeros(3)})):
        with pytest.raises(files.DamageError, match="checksum"):
            files.check(*wrong)


def test_tensors_are_written_without_a_copy(tmp_path: Path):
    omega = torch.zeros(2, 10**6)
    tensors = {"row0": omega[0], "row1": omega[1]}
    tracemalloc.start()
    try:
        files.write_tensors(tmp_path / "file", tensors, {})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < omega.nbytes / 10


def test_what_a_file_cannot_hold_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match=r"the state .a. is a tensor with torch\.sparse_coo: only dense"):
        files.write_tensors(tmp_path / "file", {"a": torch.eye(2).to_sparse()}, {})
    with pytest.raises(ValueError, match=r"the state b has dtype torch\.uint1"):
        files.write_tensors(tmp_path / "file", {"b": torch.empty(0, dtype=torch.uint1)}, {})


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


# What killed processes leave


def test_only_what_no_living_process_writes_is_swept(tmp_path: Path):
    left = [".a.json.0123abcd.partial", ".a.json.lock", ".a.json.0123456789abcdef.lock"]
    others = ["a.json", ".lock", ".a.partial", ".a.lock", ".a.json.0123abcX.partial"]
    for name in others:
        (tmp_path / name).touch()
    for name in left:
        with files.writing(tmp_path / name):
            files.sweep(tmp_path)
            assert (tmp_path / name).exists()
        files.sweep(tmp_path, "b.json")
        assert (tmp_path / name).exists()
        files.sweep(tmp_path)
    assert set(os.listdir(tmp_path)) == set(others)


def test_a_file_is_locked_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / ".file.0123abcd.partial").touch()  # of a killed process
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
