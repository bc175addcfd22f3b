"""Completion in the shell, and tables as wide as the place that they are printed to."""

import os
from pathlib import Path

import pytest
import typer.testing
from processes import Pause, Worker, types
from typer.testing import CliRunner

from subspaces.cli import app, printing
from subspaces.evaluation.metrics import METRICS
from subspaces.experiments.data import SOURCES
from subspaces.experiments.training import RECIPES
from subspaces.reports.figures import KINDS


def completed(line: str) -> list[str]:
    """What bash is offered for the last word of a command line."""
    words = line.split(" ")
    asked = {"_SUBSPACES_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return CliRunner().invoke(app, [], prog_name="subspaces", env=asked).stdout.split()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("train digits-l", [name for name in RECIPES if name.startswith("digits-l")]),
        ("compare digits-standard digits-si", [name for name in RECIPES if name.startswith("digits-si")]),
        ("compare digits-line --reference digits-sta", ["digits-standard"]),
        ("study instability cifar10-sta", ["cifar10-standard"]),
        ("study integral mnist-int", ["mnist-integral"]),
        ("recipes mnist-cur", ["mnist-curve", "mnist-curve-layerwise"]),
        ("plot ", list(KINDS)),
        ("plot along run --metric a", [name for name in METRICS if name.startswith("a")]),
        ("study noise --by nl", ["nll"]),
        ("data get ", list(SOURCES)),
        ("data check mn", ["mnist"]),
        ("train digits-line --dataset ci", ["cifar10"]),
        ("train digits-line --network cresnet2", ["cresnet20"]),
        ("train digits-line --precision bf", ["bfloat16"]),
        ("evaluate run --answers mi", ["midpoint"]),
        ("st", ["study"]),
    ],
)
def test_names_are_completed(line: str, names: list[str]) -> None:
    assert completed(f"subspaces {line}") == names


def test_a_shell_can_be_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typer.testing, "_get_command", typer.main.get_command)  # made anew, as its options depend on it
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    assert "--install-completion" in text
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # whatever shell the tests run in
    shown = CliRunner().invoke(app, ["--show-completion", "bash"], prog_name="subspaces").stdout
    assert "_SUBSPACES_COMPLETE=complete_bash" in shown


# Width


def lines(command: str, folder: Path, width: int | None) -> list[str]:
    """What a command prints into a pipe, where COLUMNS is this or not set."""
    printed = Worker(prints, command.split(), folder, width).end()
    return [line.rstrip() for line in printed.splitlines()]


def prints(pause: Pause, argv: list[str], folder: Path, width: int | None) -> None:
    os.environ.pop("COLUMNS", None)
    types(pause, argv, folder, {} if width is None else {"COLUMNS": str(width)}, [])


def test_a_pipe_gets_every_cell_in_full_on_one_line_and_columns_are_respected(tmp_path: Path) -> None:
    text = lines("data list", tmp_path, None)
    for source in SOURCES.values():
        (row,) = (line for line in text if line.split()[:1] == [source.name])
        assert all(cell in row for cell in (source.description, source.size, source.licence))
    narrow = lines("data list", tmp_path, 60)
    assert max(map(len, narrow)) <= 60
    assert len(narrow) > len(text)


def test_a_long_cell_is_neither_folded_nor_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    words = " ".join(f"word{number}" for number in range(200))
    table = printing.table("a", "b")
    table.add_row(words, "x" * 500)
    printing.show(table)
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines() if "word0" in line] == [[*words.split(), "x" * 500]]
    monkeypatch.setenv("COLUMNS", "80")
    printing.show(table)
    narrow = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= 80
