"""Every option of every command arrives in the call below, and changes nothing else of it.

An option or a command without a row in the table fails. The calls are recorded and not made; that they do what they
are told is tested where they are.
"""

import importlib
import inspect
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from option_cases import COMMANDS, ELSEWHERE, Command, Row
from typer.testing import CliRunner, Result

from subspaces import demo
from subspaces.cli import app
from subspaces.studies import integral, noise
from subspaces.training import RECIPES, Recipe, Run
from subspaces.training.config import all_fields

WIDE = {"COLUMNS": "240", "TERMINAL_WIDTH": "240"}
ROWS = [(name, option) for name, command in COMMANDS.items() for option in command.rows]


COMMAND = typer.main.get_command(app)  # which takes a while
Call = tuple[dict[str, Any] | None, int, str]
"""What the call below was made with, None if it was not; the exit code, and what was said on standard error."""


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="subspaces", env=WIDE)


class Reached(BaseException):
    """The call was made."""


def run(name: str, *arguments: str) -> Call:
    """Run a command up to the call that it makes."""
    module, function = COMMANDS[name].calls.split(":")
    signature = inspect.signature(getattr(importlib.import_module(module), function))
    seen: list[dict[str, Any]] = []

    def pretend(*given: Any, **named: Any) -> None:
        seen.append(flat(signature.bind(*given, **named).arguments))
        raise Reached

    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()), redirect_stderr(said):
        patch.setattr(f"{module}.{function}", pretend)
        with pytest.raises((Reached, SystemExit)) as ended:
            COMMAND.main([*name.split(), *arguments], prog_name="subspaces")
    return (seen[0] if seen else None), getattr(ended.value, "code", 0), said.getvalue()


without = cache(run)


def flat(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, with a list of values for each field of its recipes."""
    found = {**arguments, **arguments.get("changes", arguments.get("settings", {}))}
    found = {name: value for name, value in found.items() if name != "changes" and not callable(value)}
    if "setting" in found:
        found |= {f"setting.{name}": value for name, value in vars(found.pop("setting")).items()}
    recipes = found.get("recipe")
    if isinstance(recipes, list) and all(isinstance(one, Recipe) for one in recipes):
        del found["recipe"]
        for name in all_fields():
            found[name] = list(dict.fromkeys(getattr(one, name, None) for one in recipes))
    return found


def typed(command: Command, option: str, row: Row) -> list[str]:
    """What is typed beside an option."""
    recipes = [word for word in command.base if word.startswith("digits-")]
    others = [word for word in command.base if word not in recipes]
    if (name := f"--{option.replace('_', '-')}") in others:
        del others[others.index(name) : others.index(name) + 2]
    return [*(row.only or recipes), *others, *row.beside.split()]


@pytest.mark.parametrize(("name", "option"), ROWS, ids=[f"{name} {option}" for name, option in ROWS])
def test_an_option_arrives_and_changes_nothing_else(name: str, option: str) -> None:
    command = COMMANDS[name]
    row = command.rows[option]
    after, code, said = run(name, *typed(command, option, row), *row.typed.split())
    if row.refused:
        assert (after, code) == (None, 2)
        assert f"--{option.replace('_', '-')}" in said
        return
    if row.argument is None:
        assert (after, code) == (None, 0)
        return
    before, _, _ = without(name, *typed(COMMANDS[name], "", row))
    assert before is not None
    assert after is not None, said
    changed = {each for each in before | after if before.get(each) != after.get(each)}
    assert changed == {row.argument, *row.also}
    value, earlier = after[row.argument], before.get(row.argument)
    if isinstance(value, list) and not isinstance(row.value, list):  # of several recipes, of which some use it
        assert row.value in value
        assert row.value not in earlier
    else:
        assert value == row.value
        assert type(value) is type(row.value)


def commands(group: Any, path: str = "") -> Iterator[tuple[str, set[str]]]:
    """Every command with the names of its parameters."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", {param.name for param in command.params} - {"help"}


def test_every_option_of_every_command_has_a_row() -> None:
    found = dict(commands(COMMAND))
    listed = {name: {*command.rows, *command.arguments} for name, command in COMMANDS.items()}
    for name, more in ELSEWHERE.items():
        listed[name] = listed.get(name, set()) | more
    assert found == listed


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_not_given_is_the_default_of_the_call(name: str) -> None:
    """So that a command and the call do the same."""
    command = COMMANDS[name]
    module, function = command.calls.split(":")
    real = inspect.signature(getattr(importlib.import_module(module), function)).parameters
    seen, _, _ = without(name, *command.base)
    assert seen is not None
    fixed = {"data": "data", "root": "data", **command.defaults}
    for argument, parameter in real.items():
        if argument in seen and argument not in ("recipe", "lists") and parameter.default is not parameter.empty:
            value = seen[argument]
            value = os.fspath(value) if isinstance(value, os.PathLike) else value
            assert value == fixed.get(argument, parameter.default), argument


def test_studies_without_recipes_or_rates_are_those_of_the_calls() -> None:
    seen, _, said = run("study noise", "digits-standard", "--network", "cresnet20", "--validation", "9")
    assert seen is not None, said
    assert seen["lists"] == noise.LISTS
    for name, recipe in (("integral", integral.RECIPES), ("instability", "cifar10-standard")):
        seen, _, said = run(f"study {name}")
        assert seen is not None, said
        assert seen["recipe"] == recipe


def test_the_demo_of_the_command_is_that_of_the_call() -> None:
    seen, _, _ = without("demo")
    assert seen is not None
    assert {name: seen[f"setting.{name}"] for name in vars(demo.Setting())} == vars(demo.Setting())
    assert (seen["out"], seen["show"]) == (Path("demo"), "bar")


def test_recipes_are_all_or_the_one_that_is_named() -> None:
    assert [json.loads(line) for line in call("recipes", "--json").stdout.splitlines()] == [
        recipe.to_dict() for recipe in RECIPES.values()
    ]
    (line,) = call("recipes", "digits-curve", "--json").stdout.splitlines()
    assert json.loads(line) == RECIPES["digits-curve"].to_dict()
    shown = call("recipes", "digits-curve").stdout.splitlines()
    for field, value in RECIPES["digits-curve"].to_dict().items():
        assert sum(line.split()[:2] == [field, str(value)] for line in shown) == 1, field


def test_a_plan_counts_what_would_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    states = ["to train", "to continue", "to evaluate", "evaluated", "to continue"]
    runs = [Run.under("there", replace(RECIPES["digits-line"], seed=seed, epochs=9)) for seed in range(5)]
    monkeypatch.setattr("subspaces.studies.setting.plan", lambda *_: list(zip(runs, states, strict=True)))
    shown = [" ".join(line.split()) for line in call("compare", "digits-line", "--dry-run").stdout.splitlines()]
    assert "3 of 5 runs would be trained; nothing was done" in shown
    for run, state in zip(runs, states, strict=True):
        assert f"digits-line {run.recipe.seed} 9 {state} {run.folder}" in shown
    found = [json.loads(line) for line in call("compare", "digits-line", "--dry-run", "--json").stdout.splitlines()]
    assert [(one["run"], one["folder"], one["state"]) for one in found] == [
        (run.folder.name, str(run.folder), state) for run, state in zip(runs, states, strict=True)
    ]


@pytest.mark.parametrize("quiet", [False, True])
def test_a_fetch_shows_how_far_it_is_unless_it_is_quiet(quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(name: str, root: Any, progress: Callable[[str, int, int], None], **more: Any) -> None:
        progress("some.gz", 3, 4)

    monkeypatch.setattr("subspaces.data.get", pretend)
    result = call("data", "get", "digits", *(["--quiet"] if quiet else []))
    assert ("some.gz" in result.stderr, "75%" in result.stderr) == (not quiet, not quiet)
