"""Odd values for the options of the commands: one line and an exit code, never a traceback, and nothing is begun.

Comparisons and studies have the options of `train`, and share what checks them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import CliRunner

from subspaces.cli import build
from subspaces.cli import main as app

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


def commands(group: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name of each command and the command."""
    for name, command in group.commands.items():
        if command.commands:
            yield from commands(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


COMMANDS = dict(commands(build()))


@pytest.mark.parametrize("name", BEGINNING)
def test_an_odd_value_is_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "one" / "two"  # from which ../.. is still ours
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    options = [each for each in COMMANDS[name]._actions if each.option_strings and each.nargs != 0]
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
