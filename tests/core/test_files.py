"""Files are whole or not there, and damage is found."""

import errno
import os
import resource
from pathlib import Path

import pytest
import torch

from subspaces.core import storage


def test_content_is_written_and_replaced(tmp_path: Path):
    path = tmp_path / "file"
    storage.write(path, b"old")
    with open(path, "rb") as reader:
        storage.write(path, b"new", b" and longer")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new and longer"
    assert os.listdir(tmp_path) == ["file"]


def test_the_content_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A name of a file that is only in the memory of the system is an empty file after a power cut."""
    calls: list[tuple[str, int, int]] = []
    sync, replace = os.fsync, os.replace

    def note(what: str, file: int | str | Path) -> None:
        status = os.stat(file)
        calls.append((what, status.st_ino, status.st_size))

    monkeypatch.setattr(os, "fsync", lambda file: (note("sync", file), sync(file)))
    monkeypatch.setattr(os, "replace", lambda source, target: (note("replace", source), replace(source, target)))
    storage.write(tmp_path / "file", b"all of it")
    storage.write_tensors(tmp_path / "tensors", {"a": torch.ones(3)}, {})
    for name in ("file", "tensors"):
        status = (tmp_path / name).stat()
        own = [(what, size) for what, place, size in calls if place == status.st_ino]
        assert own == [("sync", status.st_size), ("replace", status.st_size)]


def test_a_disk_that_is_full_is_named_with_the_file(tmp_path: Path):
    path = tmp_path / "state.safetensors"
    storage.write(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match=r"could not be written.*state\.safetensors") as caught:
            storage.write_tensors(path, {"a": torch.zeros(100_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state.safetensors"]


# Tensors


def test_tensors_come_back_with_their_header(tmp_path: Path):
    path = tmp_path / "file.safetensors"
    omega = torch.arange(6.0).view(2, 3)
    tensors = {"b": torch.arange(5), "a": torch.tensor(2.5), "empty": torch.zeros(0, 3), "yes": torch.tensor([True])}
    tensors |= {"row0": omega[0], "row1": omega[1], "half": torch.ones(3, dtype=torch.bfloat16)}
    found = storage.write_tensors(path, tensors, {"key": "ω", "other": "{}"})
    header, read = storage.read_tensors(path)
    storage.check(header, read)
    assert header == {"key": "ω", "other": "{}", "checksum": found}
    assert storage.read_header(path) == header
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) and read[name].dtype == tensors[name].dtype for name in read)
    content = path.read_bytes()
    assert int.from_bytes(content[:8], "little") % 8 == 0  # so that tensors are aligned
    storage.write_tensors(path, dict(reversed(tensors.items())), {"other": "{}", "key": "ω"})
    assert path.read_bytes() == content


def test_what_is_no_file_is_not_opened(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(storage.DamageError, match="it is not a file"):
            storage.read_tensors(tmp_path / name)


def test_an_interruption_that_looks_like_damage_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C within safetensors becomes an error of its own."""
    storage.write_tensors(tmp_path / "file", {"a": torch.ones(2)}, {"key": "value"})
    opened, fails = storage.safe_open, [RuntimeError("could not determine the shape of object type")]

    def once(*given: object, **options: object) -> object:
        if fails:
            raise fails.pop()
        return opened(*given, **options)

    monkeypatch.setattr(storage, "safe_open", once)
    assert torch.equal(storage.read_tensors(tmp_path / "file")[1]["a"], torch.ones(2))
    assert not fails


# What killed processes leave


def test_only_what_no_living_process_writes_is_swept(tmp_path: Path):
    left = [".a.json.0123abcd.partial", ".a.json.lock", ".a.json.0123456789abcdef.lock"]
    others = ["a.json", ".lock", ".a.partial", ".a.lock", ".a.json.0123abcX.partial"]
    for name in others:
        (tmp_path / name).touch()
    for name in left:
        with storage.writing(tmp_path / name):
            storage.sweep(tmp_path)
            assert (tmp_path / name).exists()
        storage.sweep(tmp_path, "b.json")
        assert (tmp_path / name).exists()
        storage.sweep(tmp_path)
    assert set(os.listdir(tmp_path)) == set(others)


def test_a_file_is_locked_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / ".file.0123abcd.partial").touch()  # of a killed process
    plain, seen = os.fsync, []

    def fsync(file: int) -> None:
        storage.sweep(tmp_path)
        seen.extend(os.listdir(tmp_path))
        plain(file)

    monkeypatch.setattr(os, "fsync", fsync)
    storage.write(tmp_path / "file", b"content")
    (partial,) = seen
    assert partial.endswith(".partial")
    assert os.listdir(tmp_path) == ["file"]
