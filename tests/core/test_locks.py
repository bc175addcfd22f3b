"""Locks: one process at a time, links and odd files left alone, and systems that have other locks or none."""

import errno
import importlib.util
import os
import sys
import types
from pathlib import Path

import pytest
from processes import Pause, Worker

from subspaces.core import locks


def test_a_lock_says_who_holds_it_and_is_free_afterwards(tmp_path: Path):
    path = tmp_path / "new" / ".lock"
    with locks.attempt(path) as holder:
        assert holder is None
        with locks.attempt(path) as second:
            assert second == (f"process {os.getpid()}", True)
    with locks.attempt(path, keep=False) as again:
        assert again is None
    assert list(path.parent.iterdir()) == []


def test_a_lock_ends_with_an_error(tmp_path: Path):
    with pytest.raises(KeyError), locks.attempt(tmp_path / ".lock"):
        raise KeyError
    with locks.attempt(tmp_path / ".lock") as holder:
        assert holder is None


def holds(pause: Pause, path: Path) -> None:
    with locks.attempt(path, keep=False) as holder:
        assert holder is None
        pause(1)


def test_another_process_is_named_and_one_that_died_holds_nothing(tmp_path: Path):
    path = tmp_path / ".lock"
    worker = Worker(holds, path)
    assert worker.line() == "there\n"
    with locks.attempt(path) as holder:
        assert holder == (f"process {worker.pid}", False)
    path.write_text(f"{worker.pid} another-machine")
    with locks.attempt(path) as holder:
        assert holder == (f"process {worker.pid} on another-machine", False)
    worker.kill()
    assert path.exists()
    with locks.attempt(path) as holder:
        assert holder is None


def test_a_lock_that_its_holder_removed_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """We open the file, its holder removes it and lets go, and what we then hold is not what others find."""
    path = tmp_path / ".lock"
    plain, removed = locks.hold, []

    def hold(file: int) -> bool:
        if not removed:
            path.unlink()
            removed.append(file)
        return plain(file)

    monkeypatch.setattr(locks, "hold", hold)
    with locks.attempt(path):
        monkeypatch.undo()
        with locks.attempt(path) as other:
            assert other is not None


def test_a_link_is_not_followed(tmp_path: Path):
    target = tmp_path / "target"
    target.write_text("precious")
    for name, to in (("link", target), ("dangling", tmp_path / "nowhere")):
        (tmp_path / name).symlink_to(to)
        with pytest.raises(OSError, match=f"{name} is a symbolic link: .* remove it"), locks.attempt(tmp_path / name):
            pass
    assert target.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_file_with_two_names_is_not_written_to(tmp_path: Path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / ".lock").hardlink_to(tmp_path / "target")
    with locks.attempt(tmp_path / ".lock") as first, locks.attempt(tmp_path / ".lock") as second:
        assert first is None
        assert second is not None
    assert (tmp_path / "target").read_text() == "precious"


def test_a_disk_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", flock)
    words = r"\.lock cannot be locked \(No locks available\): choose a folder on another disk"
    with pytest.raises(OSError, match=words), locks.attempt(tmp_path / ".lock"):
        pass


def test_what_is_no_file_is_no_lock(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe is not a file"), locks.attempt(tmp_path / "pipe"):
        pass
    (tmp_path / "folder").mkdir()
    words = rf"{tmp_path} cannot be written to \(Is a directory\)"
    with pytest.raises(OSError, match=words), locks.attempt(tmp_path / "folder"):
        pass


def adds(pause: Pause, path: Path, times: int) -> None:
    for _ in range(times):
        with locks.waited(path.with_name(".lock")):
            path.write_text(str(int(path.read_text()) + 1))


def test_processes_that_wait_for_a_moment_take_turns(tmp_path: Path):
    path = tmp_path / "count"
    path.write_text("0")
    workers = [Worker(adds, path, 100) for _ in range(2)]
    for worker in workers:
        worker.end()
    assert path.read_text() == "200"
    assert os.listdir(tmp_path) == ["count"]


# Other systems


def elsewhere(monkeypatch: pytest.MonkeyPatch, msvcrt: types.ModuleType | None) -> types.ModuleType:
    """The module as it is where there is no fcntl."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", msvcrt)
    spec = importlib.util.spec_from_file_location("elsewhere", locks.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_locks_nobody_is_kept_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    module = elsewhere(monkeypatch, None)
    with module.attempt(tmp_path / ".lock") as first, module.attempt(tmp_path / ".lock") as second:
        assert first is second is None


def test_windows_locks_a_byte_that_nobody_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """As `msvcrt.locking` does: from where the file stands, and an error if another has the byte."""
    taken: set[tuple[int, int]] = set()
    windows = types.ModuleType("msvcrt")
    windows.LK_NBLCK = 2  # type: ignore[attr-defined]

    def locking(file: int, mode: int, count: int) -> None:
        assert (mode, count) == (2, 1)
        byte = os.fstat(file).st_ino, os.lseek(file, 0, os.SEEK_CUR)
        if byte in taken:
            raise OSError(errno.EACCES, "Permission denied")
        taken.add(byte)

    windows.locking = locking  # type: ignore[attr-defined]
    module = elsewhere(monkeypatch, windows)
    path = tmp_path / ".lock"
    with module.attempt(path) as first, module.attempt(path) as second:
        assert first is None
        assert second == (f"process {os.getpid()}", True)
        ((_, byte),) = taken
        assert path.stat().st_size < 100 < byte
