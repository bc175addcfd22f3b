"""A slice of the campaign, which finds nothing in the package, and what is wrong with a package that is made worse."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import Pause, Worker

from campaign import damage, judge
from campaign.__main__ import case, main
from campaign.children import Ended
from campaign.crashes import Disk

ROOT = Path(__file__).parents[2]
SLICE = ("--quick", "-n", "16", "--kills", "3", "--crashes", "6", "--commands", "16")


def skip_fsync() -> None:
    """Do not bring files to the disk."""
    call = Disk._call
    Disk._call = lambda self, name, *given, **options: None if name == "fsync" else call(self, name, *given, **options)


def write_in_place() -> None:
    """Replace files by writing into them."""

    def replace(path: str, target: str) -> None:
        with open(path, "rb") as file, open(target, "wb") as other:
            other.write(file.read())
        os.unlink(path)

    os.replace = replace


def worsen(kinds: dict[str, Any], base: Path) -> None:
    """Crash commands of a package that is made worse, and print what is found."""
    crashes = kinds["crashes"]
    wanted = [
        at for at, each in enumerate(crashes.cases) if each[0] == 0 and each[3] == "power" and "replace" in each[2]
    ]
    for plant in (skip_fsync, write_in_place):
        found = (case(crashes, "crashes", at, 0, base / f"{plant.__name__}-{at}", plant=plant) for at in wanted)
        print(f"{plant.__name__}:", next((one.bad for one in found if one.bad), "not found"))


def conducts(pause: Pause) -> None:
    sys.exit(main([*SLICE], worsen))


@pytest.mark.timeout(600)  # on a busy machine
def test_a_slice_finds_nothing_bad_but_what_is_made_worse(tmp_path: Path):
    found = Worker(conducts, errors=tmp_path / "errors").end()
    assert found.splitlines()[-1].startswith("0 bad cases of 41"), found
    assert found.count("in_place: ") == found.count("fsync: ") == 1
    assert "not found" not in found
    assert (tmp_path / "errors").read_text() == ""


# The rules


def ended(code: int, err: str = "", **others: bool) -> Ended:
    return Ended(code, "", err, **others)


def test_what_no_command_may_do():
    assert "hang" in judge.crashed(ended(0, hung=True))
    assert "process behind" in judge.crashed(ended(0, strays=True))
    assert "KeyError: 0.25" in judge.crashed(ended(1, "Traceback (most recent call last):\n  File\nKeyError: 0.25\n"))
    assert "exit code -6" in judge.crashed(ended(-6))
    assert not judge.crashed(ended(1, "error: one line\n"))


@pytest.mark.parametrize(
    ("err", "word"),
    [
        ("", "0 lines"),
        ("error: a\nerror: b\n", "2 lines"),
        ("error: 'int' object has no attribute 'x' in family.safetensors: remove it", "raw message"),
        ("error: something is damaged: remove it", "names neither"),
        ("error: family.safetensors is damaged", "does not say what to do"),
        ("error: family.safetensors is damaged ('int' object is not iterable): remove it", ""),
    ],
)
def test_what_an_error_must_say(err: str, word: str):
    found = judge.unclear(ended(1, err), {"family.safetensors"}, advice=True)
    assert word in found
    assert bool(word) == bool(found)


@pytest.mark.parametrize("how", damage.WAYS)
def test_damage_is_damage_and_the_same_for_the_same_seed(how: str, tmp_path: Path):
    content, found = b'{"epoch": 12, "loss": 0.25}', []
    for seed in (0, 0, *range(1, 20)):
        file = tmp_path / f"{len(found)}.json"
        file.write_bytes(content)
        damage.damage(how, file, random.Random(seed), tmp_path / "ran")
        found.append(file.read_bytes() if file.is_file() else how.encode())
        assert found[-1] != content
    assert found[0] == found[1]
    assert (len(set(found)) > 1) == (how in damage.BYTES and how != "emptied")


# The disk that fails

WRITE = """
import os, sys
from pathlib import Path
from campaign import crashes
folder, at, way = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
crashes.Disk(folder, at, way, journal=folder.with_name("journal")).install()
with open(folder / "safe", "w") as file:
    file.write("0123456789")
    file.flush()
    os.fsync(file.fileno())
with open(folder / "unsafe", "w") as file:
    file.write("0123456789")
os.replace(folder / "unsafe", folder / "renamed")
"""
WRITES = ["open safe", "write safe", "fsync safe", "open unsafe", "write unsafe", "replace unsafe"]


@pytest.mark.parametrize(
    ("at", "way", "left"),
    [
        (2, "after", {"safe": 0}),  # it was not flushed
        (2, "in the middle", {"safe": 5}),
        (6, "before", {"safe": 10, "unsafe": 10}),
        (6, "power", {"safe": 10, "renamed": 0}),
        (5, "full", {"safe": 10, "unsafe": 0}),
    ],
)
def test_a_disk_fails_at_one_write(at: int, way: str, left: dict[str, int], tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    words = [sys.executable, "-c", WRITE, str(folder), str(at), way]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    found = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == (1 if way == "full" else 77)
    assert found.stderr.strip().endswith("No space left on device" if way == "full" else "")
    assert {file.name: file.stat().st_size for file in folder.iterdir()} == left
    assert (tmp_path / "journal").read_text().splitlines() == WRITES[:at]
