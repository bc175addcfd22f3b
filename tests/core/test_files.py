"""Files are whole or not there, damage is found, and locks keep other processes out."""

import dataclasses
import errno
import json
import math
import os
import resource
import stat
import tracemalloc
from pathlib import Path
from typing import Any

import filelock
import pytest
import torch
from processes import Pause, Worker

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
    with pytest.raises(TypeError):
        files.write_json(path, {"a": object()})
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


# JSON


@dataclasses.dataclass
class Record:
    a: Any
    b: dict[str, Any]


def test_json_is_for_people_and_programs(tmp_path: Path):
    path = tmp_path / "value.json"
    files.write_json(path, {"a": [1, None], "b": "ω"})
    text = path.read_text()
    assert json.loads(text) == {"a": [1, None], "b": "ω"}
    assert len(text.splitlines()) > 3
    assert text.endswith("}\n")


def test_checked_json_comes_back_wherever_it_lies(tmp_path: Path):
    value = {"a": [[1, 2.5], {"b": math.inf}], "c": {"d": None, "e": "ω"}, "f": [True, "float"]}
    files.write_checked(tmp_path / "a.json", value)
    (tmp_path / "a.json").rename(tmp_path / "b.json")
    assert files.read_checked(tmp_path / "b.json") == value
    assert "sha256" in json.loads((tmp_path / "b.json").read_text())
    files.write_checked(tmp_path / "c.json", Record((1, math.nan), {"x": 1e-300}))
    found = files.read_checked(tmp_path / "c.json")
    assert math.isnan(found["a"].pop())
    assert found == {"a": [1], "b": {"x": 1e-300}}


def test_no_byte_of_checked_json_can_be_changed_unnoticed(tmp_path: Path):
    path, value = tmp_path / "a.json", {"epoch": 3, "accuracy": 0.91, "list": [{"on": "test"}], "l2": None}
    files.write_checked(path, value)
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in (0, 1, 4, 5):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
            try:
                assert files.read_checked(path) == value, place  # a space that became another one
            except files.DamageError:
                continue


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is not JSON"),
        (b"\xff\xfe", "it is not JSON"),
        (b"[]", "expected an object, found a list"),
        (b"[" * 10**5, "recursion"),
        (b"{}", "does not match its checksum"),
        (b'{"a": ' + b"1" * 400 + b"}", "a number of 400 digits"),
        (None, "it is not there"),
    ],
)
def test_what_is_no_checked_json(content: bytes | None, message: str, tmp_path: Path):
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(files.DamageError, match=message):
        files.read_checked(tmp_path / "a.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(files.DamageError, match="it is not a file"):
        files.read_checked(tmp_path / "folder")


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
    tensors = files.stored({"row0": omega[0], "row1": omega[1]})
    assert [value.data_ptr() for value in tensors.values()] == [row.data_ptr() for row in omega]
    tracemalloc.start()
    try:
        files.write_tensors(tmp_path / "file", tensors, {})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < omega.nbytes / 10


def test_what_a_file_cannot_hold_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match=r"the state .a. is a tensor with torch\.sparse_coo: only dense"):
        files.stored({"a": torch.eye(2).to_sparse()})
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


def test_folders_that_were_made_for_nothing_are_removed(tmp_path: Path):
    with files.made(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert os.listdir(tmp_path) == []
    with pytest.raises(OSError, match="too long"), files.made(tmp_path / "a" / ("b" * 300)):
        pass
    assert os.listdir(tmp_path) == []
    (tmp_path / "a").mkdir()
    with pytest.raises(KeyError), files.made(tmp_path / "a" / "b" / "c"):
        raise KeyError
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]
    with files.made(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "file").touch()
    assert (tmp_path / "a" / "b" / "file").exists()


# Locks


def test_a_lock_names_its_holder_and_is_free_afterwards(tmp_path: Path):
    path = tmp_path / "new" / ".lock"
    with files.attempt(path) as holder, files.attempt(path) as second:
        assert (holder, second) == (None, files.this_process())
    with pytest.raises(KeyError), files.attempt(path):
        raise KeyError
    with files.attempt(path, keep=False) as holder:
        assert holder is None
    assert list(path.parent.iterdir()) == []


def holds(pause: Pause, path: Path) -> None:
    with files.attempt(path, keep=False) as holder:
        assert holder is None
        pause(1)


def test_another_process_is_named_and_a_killed_one_holds_nothing(tmp_path: Path):
    path = tmp_path / ".lock"
    worker = Worker(holds, path)
    assert worker.line() == "there\n"
    with files.attempt(path) as holder:
        assert holder == f"process {worker.pid}"
    path.write_text(f"{worker.pid} another-machine")
    with files.attempt(path) as holder:
        assert holder == f"process {worker.pid} on another-machine"
    worker.kill()
    assert path.exists()
    with files.attempt(path) as holder:
        assert holder is None


def adds(pause: Pause, path: Path, times: int) -> None:
    for _ in range(times):
        with files.waited(path.with_name(".lock")):
            path.write_text(str(int(path.read_text()) + 1))


def test_processes_that_wait_take_turns(tmp_path: Path):
    path = tmp_path / "count"
    path.write_text("0")
    workers = [Worker(adds, path, 100) for _ in range(2)]
    for worker in workers:
        worker.end()
    assert path.read_text() == "200"
    assert os.listdir(tmp_path) == ["count"]


def test_links_pipes_and_folders_are_no_locks(tmp_path: Path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "dangling", "pipe", "folder"):
        with pytest.raises(OSError, match=f"{name} is a link or no file: .* remove it"), files.attempt(tmp_path / name):
            pass
    assert (tmp_path / "target").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOLCK, r"\.lock cannot be locked \(.*\): choose a folder on another disk"),
        (errno.EROFS, r"cannot be written to \(Read-only file system\): change its permissions, or work with a copy"),
    ],
)
def test_disks_without_locks_and_read_only_ones_are_named(
    number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def acquire(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    with pytest.raises(OSError, match=words), files.attempt(tmp_path / ".lock"):
        pass
    files.write(tmp_path / "file", b"written all the same")
    assert os.listdir(tmp_path) == ["file"]
