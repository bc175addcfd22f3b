"""The command line as a whole: help, exit codes, errors of one line, odd values, tables as wide as their place."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import CliRunner

import subspaces as ss
from subspaces.cli import build, printing
from subspaces.cli import main as app
from subspaces.experiments.studies.tables import Table

runner = CliRunner()


def parsers(group: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command by its name, groups of commands too."""
    for name, command in group.commands.items():
        yield f"{above}{name}", command
        yield from parsers(command, f"{above}{name} ")


PARSERS = dict(parsers(build()))


@pytest.mark.parametrize("name", ["", *PARSERS])
def test_help_fits_a_terminal_and_names_every_option(name: str) -> None:
    result = runner.invoke(app, [*name.split(), "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    lines, command = result.stdout.splitlines(), PARSERS.get(name) or build()
    assert lines[0].startswith(f"usage: {' '.join(['subspaces', *name.split()])}")
    assert max(map(len, lines)) <= 80
    assert "%%" not in result.stdout
    assert "option_strings" not in result.stdout  # of a text that argparse has formatted
    words = {word.rstrip(",") for line in lines for word in line.split()}
    shown = [each for each in command._actions if each.help != "==SUPPRESS=="]
    assert {text for each in shown for text in each.option_strings} <= words
    assert set(command.commands) <= words
    assert all(each.help for each in command._actions if not hasattr(each, "choices") or each.choices is None)


@pytest.mark.parametrize("command", [[], ["data"]], ids=" ".join)
def test_no_command_is_wrong_and_shows_the_help(command: list[str]) -> None:
    result = runner.invoke(app, command)
    assert result.exit_code == 2
    assert "commands:" in result.output
    assert "error" not in result.output


def test_version() -> None:
    assert runner.invoke(app, ["--version"]).output == f"subspaces {ss.__version__}\n"


@pytest.mark.parametrize(
    "command", ["train a", "evaluate a", "compare a", "study instability", "study integral", "study noise a"]
)
def test_every_command_that_builds_networks_takes_a_folder_of_code(command: str, tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", Path(__file__)):
        result = runner.invoke(app, [*command.split(), "--code", str(folder)])
        assert result.exit_code == 2
        assert f"--code: there is no folder '{folder}'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "--out", __file__], "is a file"),
        (["demo", "--seeds", "0"], "--seeds"),
        (["demo", "--label-noise", "2"], "--label-noise"),
        (["demos"], "did you mean 'demo'?"),
        (["banana"], "see `subspaces --help`"),
        (["data", "gte", "mnist"], "did you mean 'get'?"),
        (["--versoin"], "did you mean '--version'?"),
    ],
)
def test_a_wrong_command_is_one_line(arguments: list[str], words: str) -> None:
    result = runner.invoke(app, arguments, prog_name="subspaces")
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_reader_that_goes_away_is_no_error() -> None:
    typed = f"{sys.executable} -m subspaces recipes | true"
    env = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(typed, shell=True, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.stderr == ""


def test_arguments_may_stand_between_options(tmp_path: Path) -> None:
    out = ["--runs", str(tmp_path / "runs"), "--dry-run"]
    typed = ["compare", "digits-standard", "--epochs", "3", "digits-line", *out, "digits-ema"]
    result = runner.invoke(app, typed, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.stderr
    names = [line.split("runs/")[1].partition("-seed")[0] for line in result.stdout.splitlines() if "runs/" in line]
    assert names == ["digits-standard", "digits-line", "digits-ema"]
    wrong = runner.invoke(app, ["demo", "--epochs", "3", "digits-line"])
    assert (wrong.exit_code, "unexpected argument 'digits-line'" in wrong.stderr) == (2, True)


def test_the_package_has_nothing_else_hidden() -> None:
    with pytest.raises(AttributeError, match="'subspaces' has no attribute 'trian'"):
        _ = ss.trian


ODD = ["nan", "999999999999999999999", "\0"]
NEVER = ["--validation", "999999"]  # refused before any work, so that a value that is allowed begins nothing
BEGINNING: dict[str, list[str]] = {
    "demo": ["--seeds", "0"],
    "train": ["digits-line", *NEVER],
    "evaluate": ["nowhere"],
    "plot": ["along", "nowhere"],
    "report": ["nowhere"],
    "recipes": ["nothing"],
    "data list": ["nothing"],
    "data get": ["imagenet", "--quiet"],
    "data check": ["imagenet"],
}


@pytest.mark.parametrize("name", BEGINNING)
def test_an_odd_value_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "one" / "two"  # from which ../.. is still ours
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    options = [each for each in PARSERS[name]._actions if each.option_strings and each.nargs != 0]
    options = [each for each in options if each.option_strings[0] != "--validation"]
    wrong = []
    for option in options:
        for value in ODD:
            given = [
                *name.split(),
                *BEGINNING[name],
                option.option_strings[0],
                *[value] * (option.nargs if isinstance(option.nargs, int) else 1),
            ]
            result = CliRunner().invoke(app, given, prog_name="subspaces")
            ended = isinstance(result.exception, SystemExit) and result.exit_code in (1, 2)
            said = result.stderr + (result.stdout if name == "data check" else "")
            if not ended or said.count("\n") != 1:
                wrong.append(
                    (option.option_strings[0], value[:20], result.exit_code, repr(result.exception), said[:200])
                )
    assert wrong == []
    assert list(tmp_path.rglob("*")) == [tmp_path / "one", here]


ROWS = [
    ["standard", "network", "90.20 ± 0.36", "0.8060 ± 0.0008", "20\n× 1"],
    ["line, layerwise", "ensemble of 0.1 and 0.9", "82.83 ± 1.78\n−7.37 [−20.14, +5.40]", "1.3476 ± 0.0180", "20\n× 1"],
]
COLUMNS = ("method", "answer", "accuracy %", "NLL", "training")


@pytest.mark.parametrize("width", [60, 120])
def test_every_number_is_whole(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    printing.show_table(Table("a table", COLUMNS, ROWS, left=2))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    for text in (cell for row in ROWS for cell in row[2:]):
        for number in text.replace("[", "").replace("]", "").replace(",", "").split():
            assert any(number == word.strip("[],") for word in words), number
    assert {"standard", "network", "layerwise", "ensemble"} <= set(words)
    assert (", ," in " ".join(lines), ",," in "".join(words)) == (False, False)


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
