"""A slice of the campaign, which finds nothing in the package and every defect that is planted in it."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from processes import Pause, Worker

from campaign import mutations, pool, table, verdict
from campaign.__main__ import main
from campaign.warm import Ended

ROOT = Path(__file__).parents[2]
SLICE = (
    "--quick",
    *("-n", "12", "--kills", "2", "--crashes", "6"),
    *("--commands", "12", "--calls", "12", "--malice", "8"),
)


def conducts(pause: Pause, *options: str) -> None:
    sys.argv = ["campaign", *options]
    sys.exit(main())


@pytest.mark.timeout(900)  # on a busy machine
def test_a_slice_finds_nothing_bad_and_every_planted_defect(tmp_path: Path):
    found = Worker(conducts, *SLICE, "--plants", "--jobs", "1", errors=tmp_path / "errors").end()
    assert "\n0 of 9 planted defects were not found" in found, found
    assert found.splitlines()[-1].startswith("0 bad cases of ")
    assert (tmp_path / "errors").read_text() == ""


# The rules


def ended(code: int, err: str = "", **others) -> Ended:
    return Ended(code, "", err, 0.1, **others)


@pytest.mark.parametrize(
    ("how", "word"),
    [
        (ended(0, hung=True), "hang"),
        (ended(0, strays=True), "process behind"),
        (ended(1, "Traceback (most recent call last):\n  File\nKeyError: 0.25\n"), "KeyError: 0.25"),
        (ended(-6), "exit code -6"),
        (ended(3), "exit code 3"),
    ],
)
def test_what_no_command_may_do(how, word):
    assert word in verdict.crashed(how)
    assert not verdict.crashed(ended(1, "error: one line\n"))


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
def test_what_an_error_must_say(err, word):
    found = verdict.unclear(ended(1, err), {"family.safetensors"}, advice=True)
    assert word in found
    assert bool(word) == bool(found)


@pytest.mark.parametrize("how", mutations.BYTES)
def test_damage_is_damage_and_the_same_for_the_same_seed(how):
    content = b'{"epoch": 12, "loss": 0.25}'
    for index in range(20):
        one, same = (mutations.BYTES[how](content, pool.chance_of(0, "mutations", index)) for _ in range(2))
        assert one == same
        assert one != content
    several = {mutations.BYTES[how](content, pool.chance_of(seed, "mutations", 0)) for seed in range(20)}
    assert len(several) > 1 or how == "emptied"


def test_files_of_others_take_the_place_of_those_of_the_same_name(tmp_path: Path):
    for name, content in (("run/a.json", "mine"), ("donors/same/x/a.json", "theirs"), ("donors/same/x/b.json", "no")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    file = tmp_path / "run" / "a.json"
    told, named = mutations.damage("of the same recipe", file, tmp_path / "donors", random.Random(0))
    assert (file.read_text(), named) == ("theirs", [file])
    assert "same/x/a.json" in told


def test_where_two_answers_part():
    one, other = {"rows": [{"loss": 1.0}, {"loss": 2.0}]}, {"rows": [{"loss": 1.0}, {"loss": 2.5}]}
    assert mutations.first_difference(one, other) == ".rows[1].loss was '2.0' and is '2.5'"
    assert "was" in mutations.first_difference([1], [1, 2])


def test_the_table_counts_every_case_and_lists_the_bad_ones():
    good = verdict.Outcome("mutations", 0, "log.jsonl", "told", "refused")
    bad = verdict.Outcome("mutations", 1, "log.jsonl", "what was done", bad="a hang")
    rows = table.rows([good, bad])
    assert rows == [
        ("mutations", "log.jsonl", "2", "", "1", "", "", "1"),
        ("mutations", "all", "2", "", "1", "", "", "1"),
    ]
    campaign = table.Campaign("python -m campaign", 3, "abc", 61.0, 2)
    (text,) = table.bad_ones([good, bad], campaign)
    assert "mutations:1  a hang" in text
    assert "--seed 3 --only mutations:1" in text
    page = table.as_markdown([good, bad], campaign)
    assert all(word in page for word in ("commit abc", "1 min 1 s", "seed 3", "1 bad cases of 2", "what was done"))


# The disk that fails

WRITE = """
import os, sys
from pathlib import Path
from campaign import faults
folder, at, way = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
faults.Disk(folder, at, way, journal=folder.with_name("journal")).install()
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
        (0, "before", {"safe": 10, "renamed": 10}),
        (2, "before", {"safe": 0}),
        (2, "after", {"safe": 0}),  # it was not flushed
        (2, "in the middle", {"safe": 5}),
        (3, "after", {"safe": 10}),
        (6, "before", {"safe": 10, "unsafe": 10}),
        (6, "after", {"safe": 10, "renamed": 10}),
        (6, "power", {"safe": 10, "renamed": 0}),
        (5, "full", {"safe": 10, "unsafe": 0}),
    ],
)
def test_a_disk_fails_at_one_write(at: int, way: str, left: dict[str, int], tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, "-c", WRITE, str(folder), str(at), way],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == (0 if at == 0 else 1 if way == "full" else 77)
    assert found.stderr.strip().endswith("No space left on device" if way == "full" else "")
    assert {file.name: file.stat().st_size for file in folder.iterdir()} == left
    assert (tmp_path / "journal").read_text().splitlines() == WRITES[: at or None]
