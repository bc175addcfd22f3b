"""A slice of the campaign finds nothing in the package, and what is wrong with a package that is made worse."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import Pause, Worker

from campaign.__main__ import case, main
from campaign.crashes import Disk

SLICE = ("-n", "10", "--kills", "2", "--crashes", "4", "--commands", "8")


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
    assert found.splitlines()[-1].startswith("0 bad cases of 24"), found
    assert found.count("in_place: ") == found.count("fsync: ") == 1
    assert "not found" not in found
    assert (tmp_path / "errors").read_text() == ""
