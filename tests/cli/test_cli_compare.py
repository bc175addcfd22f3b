"""`subspaces compare` and the studies: options, the table, JSON, a dry run, stopping and errors."""

import dataclasses
import json
from pathlib import Path

import pytest
from commands import CliRunner, Result

from subspaces.cli import main as app
from subspaces.evaluation import Evaluation
from subspaces.experiments.training import Execution
from subspaces.experiments.training.recipe import all_fields

WIDE = {"COLUMNS": "240", "TERMINAL_WIDTH": "240"}
FIELDS = [*all_fields(), *(entry.name for entry in dataclasses.fields(Execution))]
SMALL = ["--epochs", "1", "--device", "cpu"]

STUDY = [
    *("study", "noise", "digits-standard", "--validation", "100"),
    *("--levels", "0", "0.4", "--smoothing-rates", "0.1", "0.2", "--dropout-rates", "0"),
]


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="subspaces", env=WIDE)


def folders(tmp_path: Path) -> list[object]:
    return ["--runs", tmp_path / "runs", "-o", tmp_path / "to"]


def test_a_table_and_the_same_again(tmp_path: Path) -> None:
    command = ["compare", "digits-standard", "digits-line", "--seeds", 0, 1, *SMALL, *folders(tmp_path)]
    result = call(*command, "--quiet")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    values = []
    for folder in sorted((tmp_path / "runs").glob("digits-standard-*")):
        values.append(100 * Evaluation.load(folder).rows[0].metrics["accuracy"])
    mean, std = sum(values) / 2, abs(values[0] - values[1]) / 2**0.5
    assert sum(line.startswith(f"standard network {mean:.2f} ± {std:.2f} ") for line in lines) == 1
    for words in ("standard ensemble of 2 runs", "line midpoint", "line ensemble of 0.1 and 0.9"):
        assert sum(line.startswith(words) for line in lines) == 1
    assert any("With 2 seeds the interval reaches 12.7 standard errors" in line for line in lines)
    assert lines[-1].startswith("wrote ")
    assert (tmp_path / "to" / "report.html").is_file()
    again = call(*command, "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout) == json.loads((tmp_path / "to" / "comparison.json").read_text())
    dry = call(*command, "--dry-run")
    assert "0 of 4 runs would be trained; nothing was done" in dry.stdout


def test_a_dry_run_does_nothing(tmp_path: Path) -> None:
    result = call("compare", "digits-standard", "digits-line", "--seeds", 0, 1, "--dry-run", *folders(tmp_path))
    assert result.exit_code == 0, result.output
    assert "4 of 4 runs would be trained" in result.stdout
    assert result.stdout.count("to train") == 4
    assert call(*STUDY, "--dry-run", *folders(tmp_path)).stdout.count("to train") == 6
    assert list(tmp_path.iterdir()) == []


def test_a_study_of_noise(tmp_path: Path) -> None:
    result = call(*STUDY, "--quiet", *SMALL, *folders(tmp_path))
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert [line.split(" network")[0] for line in lines if " network " in line] == [
        *("0 standard", "0 label smoothing", "40 standard", "40 label smoothing")
    ]
    assert (tmp_path / "to" / "noise.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("compare", "are required: RECIPE; see `subspaces compare --help`"),
        ("compare digits-lin", "no recipe 'digits-lin': did you mean 'digits-line'?"),
        ("compare digits-standard mnist-line", "methods are compared on the same data"),
        ("compare digits-standard --reference digits-line", "--reference='digits-line': "),
        ("compare digits-standard --ensembles 2", "--ensembles=2: expected 2 or more and as many seeds"),
        ("compare digits-standard --dropout 0.1", "--dropout=0.1"),
        ("study noise digits-standard", "--validation=0: the best dropout is chosen on held-out images"),
        ("study noise digits-standard --label-noise 0.1", "--label-noise=0.1: the study has levels of it instead"),
        ("study instability digits-standard --keep-epoch 3", "--keep-epoch=3: the study sets it itself"),
        ("study noise digits-standard --validation 100", "--dropout-rates 0 leaves dropout out"),
        ("study noise digits-standard --by nl", "unknown metric 'nl': did you mean 'nll'?"),
        ("study grid digits-line --over beta", "are required: --values"),
        ("study grid digits-line --over epoch --values 1", "epoch=…: no such setting; did you mean 'epochs'?"),
    ],
)
def test_a_wrong_command_is_one_line(
    arguments: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*arguments.split())
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
