"""The command line, run as a user runs it."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import subspaces as ss
from subspaces.cli import app

runner = CliRunner()


@pytest.mark.parametrize("command", [[], ["demo"]])
def test_help(command: list[str]) -> None:
    result = runner.invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_version() -> None:
    assert runner.invoke(app, ["--version"]).output == f"subspaces {ss.__version__}\n"


def test_demo_prints_a_table_and_saves_a_family(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "subspaces", "demo", "--seeds", "1", "--epochs", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=True)
    for words in ("midpoint", "accuracy %", "ECE %", "training steps", "better in", "demo.safetensors"):
        assert words in done.stdout
    family = ss.load(tmp_path / "demo.safetensors", ss.networks.MLP)
    assert family.shape == ss.Line()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "--out", "missing/demo.safetensors"], "does not exist"),
        (["demo", "--seeds", "0"], "--seeds"),
        (["demo", "--label-noise", "2"], "--label-noise"),
        (["demos"], "demo"),
    ],
)
def test_bad_arguments_are_one_message(arguments: list[str], words: str) -> None:
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output
