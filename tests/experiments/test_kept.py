"""Numbers that studies keep in a file: found by their key, whoever added them, and never from a damaged file."""

import math
import multiprocessing
from pathlib import Path

import pytest

from subspaces.experiments.locks import Kept
from subspaces.experiments.training import RunError


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


@pytest.mark.parametrize("content", [b"", b"[]", b'{"measured": []}', b'{"measured": [{"key": {}, "value": 1}]'])
def test_a_damaged_file_says_what_to_do(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=rf"{path} is damaged \(.*\): remove it, and it is measured again"):
        Kept(path).find({})


def test_a_changed_number_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    Kept(path).add({"a": 1}, 0.75)
    path.write_text(path.read_text().replace("0.75", "0.76"))
    with pytest.raises(RunError, match="it was changed by hand, or by a fault"):
        Kept(path).add({"a": 2}, 1)


def add(path: Path, number: int) -> None:
    for at in range(5):
        Kept(path).add({"number": number, "at": at}, number * at)


def test_what_two_processes_add_is_all_there(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=add, args=(path, number)) for number in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [Kept(path).find({"number": n, "at": at}) for n in (1, 2) for at in range(5)] == [
        *range(5),
        *range(0, 10, 2),
    ]
