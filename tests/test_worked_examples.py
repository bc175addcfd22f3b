"""The worked examples run as they are, in an empty folder, and leave what they say."""

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import subspaces as ss

ROOT = Path(__file__).parent.parent
Runs = Callable[..., str]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Runs:
    """Return a function that runs an example in the test's folder, and returns what it prints."""

    def run(name: str, *arguments: str) -> str:
        path = str(ROOT / "examples" / f"{name}.py")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [path, *arguments])
        runpy.run_path(path, run_name="__main__")
        return capfd.readouterr().out

    return run


def test_a_loop_of_ones_own(runs: Runs, tmp_path: Path) -> None:
    printed = runs("own_loop")
    evaluation = ss.Evaluation.load(tmp_path / "evaluation.json")
    assert evaluation.name == "my line"
    assert evaluation["midpoint"].accuracy > 0.9
    assert f"{100 * evaluation['midpoint'].accuracy:.2f}" in printed
    assert len([row for row in evaluation.rows if row.kind == "point" and row.split == "test"]) == 21
    assert (tmp_path / "along.png").stat().st_size > 10_000
    page = (tmp_path / "report.html").read_text()
    assert "my line" in page


def test_fine_tuning_in_several_ways(runs: Runs) -> None:
    printed = runs("fine_tuning", "2", "60")
    found = re.findall(r"^(.+?) +turned ([\d.]+) ± [\d.]+% +upright ([\d.]+) ± [\d.]+%$", printed, re.MULTILINE)
    turned = {name: float(new) for name, new, _ in found}
    upright = {name: float(old) for name, _, old in found}
    assert len(found) == 8
    assert turned["before"] < 40 < 75 < min(turned["fine-tuned on 100"], turned["line on 100, midpoint"])
    assert upright["fine-tuned on 60"] < upright["half-way back"] < upright["before"]
