"""Every option of every command arrives in the call below, and changes nothing else of it.

An option or a command without a row in the table fails. The calls are recorded and not made; that they do what they
are told is tested where they are.
"""

import importlib
import inspect
import io
import os
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from commands import CliRunner, Result
from option_cases import COMMANDS, ELSEWHERE, FIELDS, Command, Row

import subspaces as ss
from subspaces.cli import build, main
from subspaces.evaluation.settings import Settings
from subspaces.experiments import demo
from subspaces.experiments.training import RECIPES, Run
from subspaces.experiments.training.recipe import all_fields

WIDE = {"COLUMNS": "240", "TERMINAL_WIDTH": "240"}
ROWS = [(name, option) for name, command in COMMANDS.items() for option in command.rows]


Call = tuple[dict[str, Any] | None, int, str]
"""What the call below was made with, None if it was not; the exit code, and what was said on standard error."""


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env=WIDE)


class Reached(BaseException):
    """The call was made."""


def run(name: str, *arguments: str) -> Call:
    """Run a command up to the call that it makes."""
    module, function = COMMANDS[name].calls.split(":")
    place = importlib.import_module(module)
    signature = inspect.signature(getattr(place, function))
    seen: list[dict[str, Any]] = []

    def pretend(*given: Any, **named: Any) -> None:
        seen.append(flat(signature.bind(*given, **named).arguments))
        raise Reached

    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()), redirect_stderr(said):
        patch.setattr(place, function, pretend)
        with pytest.raises((Reached, SystemExit)) as ended:
            main([*name.split(), *arguments])
    return (seen[0] if seen else None), getattr(ended.value, "code", 0), said.getvalue()


without = cache(run)


def flat(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, or what is planned, by name, with a list of values for each field of the recipes."""
    settings = arguments.get("settings", arguments.get("options", {}))
    found = {**arguments, **arguments.get("changes", vars(settings) if isinstance(settings, Settings) else settings)}
    found = {
        name: value
        for name, value in found.items()
        if name not in ("changes", "settings", "options") and not callable(value)
    }
    if (plan := found.pop("plan", None)) is not None:
        found |= {name: getattr(plan, name) for name in ("recipes", "by", "models", "draws") if hasattr(plan, name)}
        found |= {**vars(plan.setting), "reference": getattr(getattr(plan, "reference", None), "method", None)}
    if isinstance(found.get("setting"), demo.Setting):
        found |= {f"setting.{name}": value for name, value in vars(found.pop("setting")).items()}
    if "execution" in found:
        found |= vars(found.pop("execution"))
    if "recipes" in found:
        recipes = found.pop("recipes")
        recipes = [one for one in recipes if not (hasattr(plan, "shared") and one.start_from)]
        for name in all_fields():
            found[name] = list(dict.fromkeys(getattr(one, name, None) for one in recipes))
        found["name"] = [plan.recipe.name] if hasattr(plan, "recipe") else found["name"]  # branches are named by it
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
        if command.commands:
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", {action.dest for action in command._actions} - {"help"}


def test_every_option_of_every_command_has_a_row() -> None:
    found = {name: each - FIELDS if name != "train" else each for name, each in commands(build())}
    listed = {name: {*command.rows, *command.arguments} for name, command in COMMANDS.items()}
    for name, more in ELSEWHERE.items():
        listed[name] = listed.get(name, set()) | more
    assert found == {name: each - FIELDS if name != "train" else each for name, each in listed.items()}


@pytest.mark.parametrize("name", [name for name in COMMANDS if ".studies" not in COMMANDS[name].calls])
def test_what_is_not_given_is_the_default_of_the_call(name: str) -> None:
    """So that a command and the call do the same."""
    command = COMMANDS[name]
    module, function = ("subspaces", name) if name in ("train", "evaluate") else command.calls.split(":")
    real = inspect.signature(getattr(importlib.import_module(module), function)).parameters
    seen, _, _ = without(name, *command.base)
    assert seen is not None
    for argument, parameter in real.items():
        if argument in seen and parameter.default is not parameter.empty and f"--{argument}" not in command.base:
            value = seen[argument]
            value = os.fspath(value) if isinstance(value, os.PathLike) else value
            assert value == {"data": "data", "root": "data"}.get(argument, parameter.default), argument


@pytest.mark.parametrize(
    ("command", "function"),
    [
        (["compare", "digits-line", "digits-standard"], lambda: ss.compare(["digits-line", "digits-standard"])),
        (
            ["study", "noise", "digits-standard", "--network", "cresnet20", "--validation", "9"],
            lambda: ss.studies.study_noise("digits-standard", network="cresnet20", validation=9),
        ),
        (["study", "integral"], ss.studies.study_integral),
        (["study", "instability"], ss.studies.study_instability),
    ],
    ids=lambda each: " ".join(each[:2]) if isinstance(each, list) else "",
)
def test_a_command_plans_what_the_call_plans(
    command: list[str], function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[Any] = []
    for name in ("setting", "compare", "grid", "instability"):
        monkeypatch.setattr(importlib.import_module(f"subspaces.experiments.studies.{name}"), "run", plans.append)
    function()
    with pytest.raises((SystemExit, AttributeError)):  # there is no result to show
        main(command)
    call, typed = plans
    assert typed == replace(call, setting=replace(call.setting, data=Path("data")))


def test_the_demo_of_the_command_is_that_of_the_call() -> None:
    seen, _, _ = without("demo")
    assert seen is not None
    assert {name: seen[f"setting.{name}"] for name in vars(demo.Setting())} == vars(demo.Setting())
    assert (seen["out"], seen["show"]) == (Path("demo"), "bar")


def test_a_plan_counts_what_would_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    states = ["to train", "to continue", "to evaluate", "evaluated", "to continue"]
    runs = [Run.under("there", replace(RECIPES["digits-line"], seed=seed, epochs=9)) for seed in range(5)]
    monkeypatch.setattr("subspaces.experiments.studies.setting.states", lambda *_: list(zip(runs, states, strict=True)))
    shown = [" ".join(line.split()) for line in call("compare", "digits-line", "--dry-run").stdout.splitlines()]
    assert "3 of 5 runs would be trained; nothing was done" in shown
    for run, state in zip(runs, states, strict=True):
        assert f"9 {state} {run.folder}" in shown
