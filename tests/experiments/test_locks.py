"""Locks keep other processes out, and several processes add to one file of numbers."""

import errno
import math
import os
from pathlib import Path
from typing import Any

import filelock
import pytest
from processes import Pause, Worker

from subspaces.core import storage
from subspaces.experiments import locks
from subspaces.experiments.locks import Kept


def test_folders_that_were_made_for_nothing_are_removed(tmp_path: Path):
    with locks.made(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert os.listdir(tmp_path) == []
    with pytest.raises(OSError, match="too long"), locks.made(tmp_path / "a" / ("b" * 300)):
        pass
    assert os.listdir(tmp_path) == []
    (tmp_path / "a").mkdir()
    with pytest.raises(KeyError), locks.made(tmp_path / "a" / "b" / "c"):
        raise KeyError
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]
    with locks.made(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "file").touch()
    assert (tmp_path / "a" / "b" / "file").exists()


def test_a_lock_names_its_holder_and_is_free_afterwards(tmp_path: Path):
    path = tmp_path / "new" / ".lock"
    with locks.attempt(path) as holder, locks.attempt(path) as second:
        assert (holder, second) == (None, f"process {os.getpid()}")
    with pytest.raises(KeyError), locks.attempt(path):
        raise KeyError
    assert path.read_text() == ""  # or the next process would be taken for this one until it has written its number
    with locks.attempt(path, keep=False) as holder:
        assert holder is None
    assert list(path.parent.iterdir()) == []


def holds(pause: Pause, path: Path) -> None:
    with locks.attempt(path, keep=False) as holder:
        assert holder is None
        pause(1)


def test_another_process_is_named_and_a_killed_one_holds_nothing(tmp_path: Path):
    path = tmp_path / ".lock"
    worker = Worker(holds, path)
    assert worker.line() == "there\n"
    with locks.attempt(path) as holder:
        assert holder == f"process {worker.pid}"
    path.write_text(f"{worker.pid} another-machine")
    with locks.attempt(path) as holder:
        assert holder == f"process {worker.pid} on another-machine"
    worker.kill()
    assert path.exists()
    with locks.attempt(path) as holder:
        assert holder is None


def test_links_pipes_and_folders_are_no_locks(tmp_path: Path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "dangling", "pipe", "folder"):
        with pytest.raises(OSError, match=f"{name} is a link or no file: .* remove it"), locks.attempt(tmp_path / name):
            pass
    assert (tmp_path / "target").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EROFS])
def test_disks_without_locks_and_read_only_ones_are_named(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    words = rf"cannot be written to \({os.strerror(number)}\): change its permissions, work with a copy"

    def acquire(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    with pytest.raises(OSError, match=words), locks.attempt(tmp_path / ".lock"):
        pass
    storage.write(tmp_path / "file", b"written all the same")
    assert os.listdir(tmp_path) == ["file"]


def test_one_that_is_waited_for_is_named_once_and_not_before_it_has_a_name(capsys: pytest.CaptureFixture[str]):
    told = set[str]()
    for holder in ("process ?", "process 5", "process 5", "process ?"):
        locks.wait({"a run": holder}, "training", told, locks.Stop())
    said = "waiting for a run, which process 5 is training\nwaiting for a run, which process ? is training\n"
    assert capsys.readouterr().err == said


# Numbers that are kept in a file


def test_an_entry_is_found_by_its_whole_key_and_the_last_one_counts(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "measured.json")
    key = {"kind": "average", "families": ["a", "b"]}
    assert kept.find(key) is None
    kept.add(key, {"test": {"nll": math.nan, "accuracy": 0.5}})
    kept.add({**key, "draw": 1}, 2.0)
    kept.add(key, {"test": {"nll": math.inf, "accuracy": 0.25}})
    for one in (kept, Kept(tmp_path / "measured.json")):
        assert one.find(key) == {"test": {"nll": math.inf, "accuracy": 0.25}}
        assert one.find({**key, "draw": 1}) == 2.0
        assert one.find({**key, "families": ["b", "a"]}) is None


@pytest.mark.parametrize("content", [b"", b'{"measured": []}'])
def test_a_damaged_file_says_what_to_do(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path} is damaged \(.*\): remove it, and it is measured again"):
        Kept(path).find({})
    path.unlink()
    Kept(path).add({"a": 1}, 0.75)
    path.write_text(path.read_text().replace("0.75", "0.76"))
    with pytest.raises(ValueError, match="it was changed by hand, or by a fault"):
        Kept(path).add({"a": 2}, 1)


def keeps(pause: Pause, path: Path, number: int) -> None:
    for at in range(5):
        Kept(path).add({"number": number, "at": at}, number * at)


def test_what_two_processes_add_is_all_there(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    for worker in [Worker(keeps, path, number) for number in (1, 2)]:
        worker.end()
    assert [Kept(path).find({"number": n, "at": at}) for n in (1, 2) for at in range(5)] == [*range(5), 0, 2, 4, 6, 8]
