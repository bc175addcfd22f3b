"""The worked examples run as they are, in an empty folder, and leave what they say."""

import os
import re
import runpy
import sys
from pathlib import Path

import pytest
from processes import Pause, Worker

import subspaces as ss

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < (60 if path.stem == "fine_tuning" else 40)  # it compares eight ways


def runs(pause: Pause, path: Path, folder: Path, *arguments: str) -> None:
    os.chdir(folder)
    sys.argv = [str(path), *arguments]
    runpy.run_path(str(path), run_name="__main__")


def test_a_loop_of_ones_own(tmp_path: Path) -> None:
    printed = Worker(runs, ROOT / "examples" / "own_loop.py", tmp_path).end()
    evaluation = ss.Evaluation.load(tmp_path / "evaluation.json")
    assert evaluation.name == "my line"
    assert evaluation["midpoint"].accuracy > 0.9
    assert f"{100 * evaluation['midpoint'].accuracy:.2f}" in printed
    assert [choice.by for choice in evaluation.choices if choice.what == "point"] == ["accuracy", "nll"]
    assert len([row for row in evaluation.rows if row.kind == "point" and row.split == "test"]) == 21
    assert (tmp_path / "along.png").stat().st_size > 10_000
    page = (tmp_path / "report.html").read_text()
    assert "my line" in page
    assert "midpoint" in page


def test_fine_tuning_in_several_ways(tmp_path: Path) -> None:
    printed = Worker(runs, ROOT / "examples" / "fine_tuning.py", tmp_path, "2", "60").end()
    found = re.findall(r"^(.+?) +turned ([\d.]+) ± [\d.]+% +upright ([\d.]+) ± [\d.]+%$", printed, re.MULTILINE)
    turned = {name: float(new) for name, new, _ in found}
    upright = {name: float(old) for name, _, old in found}
    assert len(found) == 8
    assert turned["before"] < 40 < 75 < min(turned["fine-tuned on 100"], turned["line on 100, midpoint"])
    assert upright["fine-tuned on 60"] < upright["half-way back"] < upright["before"]
