"""`subspaces reproduce`: the list, the plan, the making, and what is said of names that there are not."""

import json
from pathlib import Path

import pytest
from commands import CliRunner, Result

from subspaces.cli import main as app
from subspaces.experiments.paper import FIGURES

WIDE = {"COLUMNS": "300", "TERMINAL_WIDTH": "300"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder."""
    monkeypatch.chdir(tmp_path)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", *arguments], prog_name="subspaces", env=WIDE)


def test_without_a_name_it_says_what_is_possible_here(tmp_path: Path) -> None:
    done = call()
    assert done.exit_code == 0
    for name, figure in FIGURES.items():
        (line,) = (line for line in done.output.splitlines() if line.split()[:1] == [name])
        assert figure.shows in line
    assert "not possible here, on cifar10: cifar10: 'data' is not a folder (--data)" in done.output
    assert "subspaces data get tiny-imagenet --data data" in done.output
    assert not list(tmp_path.iterdir())


def test_a_plan_is_shown_and_nothing_is_done(tmp_path: Path) -> None:
    done = call("along", "dynamics", "--seeds", "0", "1", "--dry-run")
    assert done.exit_code == 0
    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    assert "along Figure 4 digits 10 × 12 10" in lines
    assert "all, each run once 12 12" in lines
    assert lines[-1] == "nothing was done"
    assert not list(tmp_path.iterdir())
    done = call("integral", "--scale", "paper", "--dry-run")
    assert "integral Figure 14 mnist 36 × 10 not here" in [" ".join(line.split()) for line in done.output.splitlines()]
    assert "not possible here, on mnist: mnist: 'data' is not a folder" in done.output


def test_a_figure_is_made_and_its_claims_are_told(tmp_path: Path) -> None:
    done = call("dynamics", "--seeds", "0", "1", "--quiet", "--device", "cpu")
    assert done.exit_code == 0, done.output
    before, after = done.output.split("all, each run once")
    assert "4 × 12" in before
    assert "Figure 3: L2 distance and cos² between the ends of a line" in after
    assert "with β = 1 the ends are nearly orthogonal at the end" in after
    assert "ensemble of 0.1 and 0.9" in after  # the table of what was measured
    assert "A claim is judged by its difference" in after
    assert f"wrote {Path('reproduced', 'claims.json')}" in after
    assert len(list((tmp_path / "runs").iterdir())) == 4
    again = call("dynamics", "--seeds", "0", "1", "--json", "--device", "cpu")
    found = json.loads(again.stdout)
    assert found == json.loads((tmp_path / "reproduced" / "claims.json").read_text())
    assert "all, each run once 4 0" in " ".join(call("dynamics", "--seeds", "0", "1", "--dry-run").output.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dynamic"], "no figure 'dynamic': did you mean 'dynamics'?"),
        (["along", "--scale", "papers"], "unknown scale 'papers': did you mean 'paper'?"),
        (["along", "--scale", "paper", "--on", "cifar"], "--on='cifar': did you mean 'cifar10'?"),
        (["along", "--seeds", "-1"], "--seeds=-1: expected"),
        (["along", "--epochs", "3"], "unexpected argument '--epochs'"),
    ],
)
def test_a_wrong_command_is_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    done = call(*words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_what_is_not_possible_here_fails_with_the_reason(tmp_path: Path) -> None:
    done = call("along", "--scale", "paper", "--quiet")
    assert done.exit_code == 2
    assert "error: nothing of it is possible here: cifar10: 'data' is not a folder" in done.stderr
    assert not list(tmp_path.iterdir())
