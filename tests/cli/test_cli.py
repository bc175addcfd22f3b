"""The command line as a whole, run as a user runs it: help, exit codes, errors of one line."""

import subprocess
import sys
from pathlib import Path

import pytest
from commands import CliRunner

import subspaces as ss
from subspaces.cli import main as app

runner = CliRunner()


@pytest.mark.parametrize(
    "command",
    [
        [],
        *([name] for name in ("demo", "train", "evaluate", "compare", "plot", "report", "recipes", "data")),
        *(["data", name] for name in ("list", "get", "check")),
        *(["study", name] for name in ("instability", "integral", "noise")),
    ],
    ids=" ".join,
)
def test_help(command: list[str]) -> None:
    result = runner.invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "usage: subspaces" in result.output


def test_the_help_lists_all_commands() -> None:
    output = runner.invoke(app, ["--help"]).output
    commands = ("demo", "train", "evaluate", "compare", "plot", "report", "recipes", "study", "data")
    assert all(f" {command} " in output for command in commands)


def test_the_help_of_the_studies_lists_them_all() -> None:
    output = runner.invoke(app, ["study", "--help"]).output
    assert all(f" {study}" in output for study in ("instability", "integral", "noise"))


@pytest.mark.parametrize("command", [[], ["data"]], ids=" ".join)
def test_no_command_is_wrong_and_shows_the_help(command: list[str]) -> None:
    result = runner.invoke(app, command)
    assert result.exit_code == 2
    assert "commands:" in result.output
    assert "error" not in result.output


def test_version() -> None:
    assert runner.invoke(app, ["--version"]).output == f"subspaces {ss.__version__}\n"


@pytest.mark.parametrize(
    "command",
    ["train a", "evaluate a", "compare a", "study instability", "study integral", "study noise a"],
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
    command = f"{sys.executable} -m subspaces recipes --json | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""


ASKED = """
import os, sys, subspaces as ss
assert "subspaces.experiments.training" not in sys.modules
for name in ("train", "Recipe"):
    if os.fork() == 0:
        getattr(ss, name)
        os._exit(0 if "subspaces.experiments.training" in sys.modules else 3)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, name
"""


def test_training_is_imported_when_it_is_asked_for() -> None:
    subprocess.run([sys.executable, "-c", ASKED], check=True)


def test_the_package_has_nothing_else_hidden() -> None:
    with pytest.raises(AttributeError, match="'subspaces' has no attribute 'trian'"):
        _ = ss.trian
