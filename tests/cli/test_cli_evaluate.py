"""`subspaces evaluate`: options, the table, JSON, stopping and errors."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from commands import CliRunner, Result

import subspaces as ss
from subspaces.cli import main as app
from subspaces.evaluation import Evaluation
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.settings import Settings
from subspaces.experiments.training import Execution

WIDE = {"COLUMNS": "240", "TERMINAL_WIDTH": "240"}


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="subspaces", env=WIDE)


def evaluate(*arguments: object) -> Result:
    return call("evaluate", *arguments, "--device", "cpu")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = tmp_path_factory.mktemp("runs")
    settings: dict[str, Any] = {"out": out, "show": "quiet", "device": "cpu", "epochs": 1}
    runs = ss.train(["digits-standard", "digits-simplex"], **settings)
    return [run.folder for run in [*runs, *ss.train("digits-line", validation=200, **settings)]]


@pytest.fixture
def runs(trained: list[Path], tmp_path: Path) -> list[Path]:
    """A single network, a simplex and a line with held-out images."""
    return [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in trained]


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is measured and how, as the command says it; nothing is measured."""
    seen: dict[str, Any] = {}

    def pretend(runs: list[Path], settings: Settings, *, execution: Execution, **others: Any) -> None:
        where = {name: getattr(execution, name) for name in ("device", "precision", "workers")}
        seen.update(vars(settings), **others, **where, runs=runs)
        raise SystemExit(0)

    monkeypatch.setattr("subspaces.experiments.evaluating.evaluate.evaluate_runs", pretend)
    return seen


def test_names_may_follow_an_option_in_a_row(received: dict[str, Any]) -> None:
    options = "one two --corruptions fog snow --answers midpoint vertices --corruptions frost"
    assert call("evaluate", *options.split()).exit_code == 0
    assert received["runs"] == [Path("one"), Path("two")]
    assert received["corruptions"] == ss.Corruptions(["fog", "snow", "frost"])
    assert received["answers"] == ("midpoint", "vertices")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--severities 2", "--severities=[2]: expected it with --corruptions all"),
        ("--corruption-seed 2", "--corruption-seed=2: expected it with --corruptions all"),
        ("--corruptions fog --severities 6", "--severities=6: expected at least 1 and at most 5"),
        ("--corruptions fogs", "'fogs': did you mean 'fog'?"),
    ],
)
def test_what_is_wrong_about_a_shift_is_said_as_it_is_typed(typed: str, said: str) -> None:
    result = call("evaluate", "nowhere", *typed.split())
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_shifts_are_printed(runs: list[Path]) -> None:
    typed = [runs[0], "--corruptions", "contrast", "--severities", "1"]
    shown = evaluate(*typed, "-q")
    assert shown.exit_code == 0, shown.stderr
    assert "mean over 1 set of 1 kind " in shown.stdout
    printed = json.loads(evaluate(*typed, "--json").stdout)
    (shift,) = printed["shifts"]
    assert (shift["name"], shift["severity"], shift["networks"]) == ("contrast", 1, 1)
    assert 0 < shift["metrics"]["accuracy"] < 1


def test_other_points_are_not_taken_for_checkpoints(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"out": tmp_path, "show": "quiet", "device": "cpu"}
    (run,) = ss.train("digits-swa-cyclic", epochs=4, vertices=2, **settings)
    result = evaluate(run.folder, "--grid", "0.2", "0.3", "--json")
    assert [line["what"] for line in json.loads(result.stdout)["results"]] == [
        *("average of 2", "ensemble of 2 checkpoints")
    ]
    (both,) = (answer for answer in Evaluation.load(run.folder).answers if answer.name == "vertices")
    assert both.alphas == [0.0, 1.0]  # not the nearest of the grid


def test_a_table_at_the_end(runs: list[Path]) -> None:
    result = evaluate(*runs, "--grid", "0", "0.1", "0.15", "0.85", "--random", "2", "--quiet")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    lines = [line.strip() for line in result.stdout.splitlines()]
    records = [Evaluation.load(folder) for folder in runs]
    for record, center in zip(records, ("network", "midpoint", "midpoint"), strict=True):
        line = lines[lines.index(record.name) + 1]  # which is a line of its own
        row = next(row for row in record.rows if row.role == "midpoint" and row.split == "test")
        m = row.metrics
        numbers = [f"{100 * m['accuracy']:.2f}", f"{m['nll']:.4f}", f"{m['brier']:.4f}", f"{100 * m['ece']:.2f}"]
        assert line.split()[:7] == [center, "–", "1", *numbers]
    for words in ("ensemble of 3 vertices", "ensemble of 2 random points", "ensemble of 0.1 and 0.9"):
        assert sum(line.startswith(f"{words} ") for line in lines) == 1
    (best,) = (line for line in lines if line.startswith("best point by accuracy"))
    choice = records[2].choices[0]
    assert f"{choice.value:g}" in best
    assert f"{100 * choice.reported['test']['accuracy']:.2f}" in best
    assert "validation" in best
    assert "*" not in best


def test_json_is_all_there_is_on_standard_output(runs: list[Path]) -> None:
    result = evaluate(*runs, "--grid", "0", "0.5", "--triangle", "0", "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for line, folder in zip(result.stdout.splitlines(), runs, strict=True):
        found, record = json.loads(line), Evaluation.load(folder)
        assert (found["run"], found["folder"]) == (folder.name, str(folder))
        assert (found["recipe"], found["seed"]) == (record.recipe["name"], 0)
        middle = next(row for row in record.rows if row.role == "midpoint" and row.split == "test")
        assert found["results"][0]["metrics"] == middle.metrics
        chosen = [entry for entry in found["results"] if entry["chosen_on"]]
        assert [entry["metrics"] for entry in chosen] == [choice.reported["test"] for choice in record.choices]


def test_a_signal_stops_and_the_same_command_continues(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    measure, seen = Predictor.outputs, [0]

    def stopping(self: Predictor, *args: Any, **how: Any) -> Any:
        seen[0] += 1
        if seen[0] == 9:
            os.kill(os.getpid(), signal.SIGINT)
        return measure(self, *args, **how)

    monkeypatch.setattr(Predictor, "outputs", stopping)
    command = (runs[1], "--plane", "--cells", "3", "--triangle", "2", "--quiet")
    result = evaluate(*command)
    assert result.exit_code == 130
    assert result.stderr == "stopped; the same command continues\n"
    assert seen == [9]
    assert not (runs[1] / "evaluation.json").exists()
    assert evaluate(*command).exit_code == 0
    cells = [cell for line in Evaluation.load(runs[1]).planes[0].values["nll"] for cell in line]
    assert None not in cells
    asked = seen[0]
    assert asked == len(Evaluation.load(runs[1]).splits) * 6 + 9
    assert evaluate(*command).exit_code == 0
    assert seen[0] == asked  # nothing is measured twice


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "are required: RUN; see `subspaces evaluate --help`"),
        ("run --grid nan 1", "--grid=nan: expected a finite number"),
        ("run --cells 999999999999", "--cells=999999999999: expected at least 2 and at most 501"),
        ("run --workers -1", "--workers=-1: expected at least 0"),
        ("run --plane-through a --plane-through b --plane-through c --plane-through d", "--plane-through="),
        ("run --device gpu", "--device='gpu': expected auto, cpu, cuda or cuda:N"),
        ("run --precision float23", "--precision: 'float23': did you mean 'float32'?"),
        ("run --cell 3", "did you mean '--cells'?"),
    ],
)
def test_a_wrong_command_is_one_line(arguments: str, words: str) -> None:
    result = call("evaluate", *arguments.split())
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_a_run_that_cannot_be_evaluated_is_one_line(runs: list[Path], tmp_path: Path) -> None:
    (runs[0] / "result.json").unlink()
    (reserved := tmp_path / "reserved").mkdir()
    (reserved / ".lock").touch()  # by a process that never began it
    assert evaluate(reserved, runs[2], "--quiet").exit_code == 0
    assert evaluate(reserved, "--quiet").exit_code == 2
    cases: dict[str, tuple[object, ...]] = {
        "is not a run folder": (tmp_path / "nowhere",),
        "is not finished, it has no result": (runs[0],),
        "name 1 of other runs, --plane-through RUN": (runs[2], "--plane"),
    }
    for words, arguments in cases.items():
        result = evaluate(*arguments, "--quiet")
        assert result.exit_code == (2 if "--plane" in arguments else 1), result.output
        assert words in result.stderr
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
        assert result.stdout == ""
