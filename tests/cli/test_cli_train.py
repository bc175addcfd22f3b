"""`subspaces train` and `subspaces recipes`: options from dataclasses, results, and how it ends."""

import dataclasses
import functools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import CliRunner, Result
from helpers import unsealed
from processes import Pause, Worker, types

from subspaces.cli import main as app
from subspaces.errors import UserError
from subspaces.experiments.methods import METHODS, users
from subspaces.experiments.training import Execution, Recipe
from subspaces.experiments.training.display import Display
from subspaces.experiments.training.recipe import all_fields
from subspaces.text import listed

WIDE = {"COLUMNS": "240", "TERMINAL_WIDTH": "240"}
FIELDS = [*all_fields().values(), *dataclasses.fields(Execution)]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="subspaces", env=WIDE)


@functools.cache
def shown_help() -> str:
    return call("train", "--help").output


def train(out: Path, *arguments: str) -> Result:
    return call("train", *arguments, "--out", str(out))


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `train_recipes` is called with; nothing is trained."""
    seen: dict[str, Any] = {}

    def pretend(recipes: list[Recipe], execution: Execution, **settings: Any) -> list[Any]:
        seen.update(settings, **vars(execution), recipes=recipes)
        return []

    monkeypatch.setattr("subspaces.experiments.training.api.train_recipes", pretend)
    return seen


# Options


def test_the_help_has_a_group_for_each_kind_of_option() -> None:
    output = shown_help()
    groups = [line.split(":")[0] for line in output.splitlines() if line.endswith(":") and not line.endswith("batch:")]
    assert groups == ["positional arguments", "options", "recipe", "execution", "output"]
    assert "as in the recipe" in output
    assert all(f"{kind.name}: {kind.meaning}" in " ".join(output.split()) for kind in list(METHODS.values())[:3])


def test_the_help_says_which_methods_a_field_is_for() -> None:
    rows, name = dict[str, str](), ""
    for line in shown_help().splitlines():
        words = line.split()
        name = words[0].rstrip(",") if words and words[0].startswith("--") else name
        rows[name] = f"{rows.get(name, '')} {' '.join(words)}"
    for field in all_fields():
        ending = f"For {listed(users(field))}."
        assert rows[f"--{field.replace('_', '-')}"].endswith(ending) == (len(users(field)) > 0 and field != "vertices")
    assert "Vertices of the subspace. For curve and simplex. Checkpoints" in rows["--vertices"]


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        (["digits-line", "--ray"], "auto"),
        (["--ray", "10.0.0.1:6379", "digits-line"], "10.0.0.1:6379"),
        (["--ray", "--", "digits-line"], "auto"),
    ],
)
def test_a_cluster_needs_no_address(typed: list[str], address: str, received: dict[str, Any]) -> None:
    result = call("train", "--quiet", *typed)
    assert result.exit_code == 0, result.output
    assert [one.name for one in received["recipes"]] == ["digits-line"]
    assert received["ray"] == address


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--gpus-per-run", "0.5"], "--gpus-per-run=0.5: it is for runs on a Ray cluster; add --ray"),
        (["--ray=ray://head:10001"], "--ray='ray://head:10001': expected auto, local, or HOST:PORT"),
        (["--ray", "--device", "cuda:1"], "--device='cuda:1' with ray: expected auto, cpu or cuda"),
    ],
)
def test_what_does_not_fit_a_cluster_is_an_error_in_the_command(typed: list[str], said: str) -> None:
    result = call("train", "digits-line", *typed)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize("typed", ["digits-line --seeds 0 1 2", "--seeds 0 --quiet --seeds 1 2 -- digits-line"])
def test_seeds_in_a_row(typed: str, received: dict[str, Any]) -> None:
    assert call("train", "--beta", "2", *typed.split()).exit_code == 0
    assert [recipe.seed for recipe in received["recipes"]] == [0, 1, 2]
    assert {recipe.name for recipe in received["recipes"]} == {"digits-line"}


# Results


def test_a_table_at_the_end_and_nothing_is_trained_twice(tmp_path: Path) -> None:
    first = train(tmp_path, "digits-standard", "digits-line", "--seeds", "0", "1", "--epochs", "1", "--quiet")
    assert first.exit_code == 0, first.output
    assert first.stderr == ""
    for word in ("recipe", "seed", "epochs", "train %", "test %", "L2", "cos²", "folder"):
        assert word in first.stdout
    assert "Finished before" not in first.stdout
    folders = sorted(tmp_path.iterdir())
    assert len(folders) == 4
    assert all(str(folder) in first.stdout for folder in folders)
    again = train(tmp_path, "digits-line", "--seeds", "0", "1", "2", "--epochs", "1", "--quiet")
    assert again.exit_code == 0
    assert len(list(tmp_path.iterdir())) == 5
    (line,) = (line for line in again.stdout.splitlines() if line.startswith("Finished before"))
    assert "digits-line-seed0" in line
    assert "digits-line-seed1" in line
    assert "digits-line-seed2" not in line


def test_the_numbers_of_the_table_are_those_of_the_result(tmp_path: Path) -> None:
    result = train(tmp_path, "digits-simplex", "--epochs", "2", "--validation", "200", "--quiet")
    assert result.exit_code == 0, result.output
    (folder,) = tmp_path.iterdir()
    (line,) = (line.split() for line in result.stdout.splitlines() if str(folder) in line)
    final = unsealed(folder / "result.json")
    shares = [f"{100 * final[f'{name}_accuracy']:.1f}" for name in ("train", "validation", "test")]
    assert line == ["digits-simplex", "0", "2", *shares, f"{final['l2']:.1f}", f"{final['cos2']:.3f}", str(folder)]


def test_json_is_all_there_is_on_standard_output(tmp_path: Path) -> None:
    arguments = ("digits-line", "digits-standard", "--epochs", "2", "--json")
    result = train(tmp_path, *arguments)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    lines = rows(result.stdout)
    epochs, runs = [line for line in lines if "epoch" in line], [line for line in lines if "result" in line]
    assert [line["epoch"] for line in epochs] == [1, 2, 1, 2]
    assert [line["recipe"] for line in runs] == ["digits-line", "digits-standard"]
    for run in runs:
        assert Path(run["folder"]).name == run["run"]
        assert run["result"] == unsealed(Path(run["folder"]) / "result.json")
        assert run["finished_before"] is False
    again = rows(train(tmp_path, *arguments).stdout)
    assert again == [{**run, "finished_before": True} for run in runs]


# Errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "are required: RECIPE; see `subspaces train --help`"),
        ("digits-lin", "no recipe 'digits-lin': did you mean 'digits-line'?"),
        ("digits-line --epoch 3", "'--epoch' (did you mean '--epochs'?)"),
        ("digits-line --xyzzy", "see `subspaces train --help`"),
        ("digits-line --epochs many", "--epochs"),
        ("digits-line --label-noise 2", "--label-noise=2.0: expected a fraction"),
        ("digits-line --method lin", "'lin': did you mean 'line'?"),
        ("digits-line --precision float23", "'float23': did you mean 'float32'?"),
        ("digits-line --network mpl", "unknown network 'mpl' (did you mean 'mlp'?)"),
        ("digits-line --network ..bad:x", "--network='..bad:x': expected package.module:factory"),
        ("digits-line --network timm:", "unknown network 'timm:': expected 'cresnet20'"),
        ("digits-line --dataset mnits", "no data set is called 'mnits': did you mean 'mnist'?"),
        ("digits-line --optimizer Adm", "--optimizer='Adm': did you mean 'Adam'?"),
        ("digits-line --device meta", "--device='meta': expected auto, cpu, cuda or cuda:N"),
        ("digits-line --device cuda:99", "--device='cuda:99': this machine has"),
        ("digits-line --device cpu --graph", "--graph on cpu: a CUDA graph needs"),
        ("digits-line --seeds 0 -1", "--seed=-1: expected at least 0"),
        ("digits-line --seeds 0 --seed 1", "--seed and --seeds exclude each other"),
        ("digits-line --quiet --json", "not allowed with argument --quiet"),
    ],
)
def test_a_wrong_command_is_one_line_with_the_nearest_name(arguments: str, words: str, tmp_path: Path) -> None:
    result = train(tmp_path / "runs", *arguments.split())
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("cifar10-line --data nowhere", 1, "subspaces data get cifar10 --data nowhere"),
        ("digits-line --network cresnet20", 2, "takes images of 3 channels"),
        ("digits-line --network nosuchmodule:net", 1, "module 'nosuchmodule' cannot be imported"),
        ("digits-line --network builtins:dict", 2, "expected a Python function that makes a network"),
        ("digits-line --network json:dumps", 2, "dumps() missing 1 required positional argument: 'obj'"),
        ("digits-line --network sys:exit", 2, "and it is <built-in function exit>"),
        ("digits-line --learning-rate 1e30 --epochs 3", 1, "lower --learning-rate"),
    ],
)
def test_a_run_that_fails_is_one_line(arguments: str, code: int, words: str, tmp_path: Path) -> None:
    result = train(tmp_path, *arguments.split(), "--quiet")
    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_file_in_the_way_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = train(tmp_path / "file", "digits-line", "--epochs", "1", "--quiet")
    assert result.exit_code == 1
    assert str(tmp_path / "file") in result.stderr


@pytest.mark.parametrize("kind", [UserError, OSError, KeyboardInterrupt])
def test_errors_without_words_and_ctrl_c_while_nothing_trains(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise kind

    monkeypatch.setattr("subspaces.experiments.training.api.train_recipes", fail)
    result = call("train", "digits-line")
    stopped = kind is KeyboardInterrupt
    assert result.exit_code == (130 if stopped else 1)
    assert result.stderr == ("stopped\n" if stopped else f"error: {kind.__name__}\n")


def types_and_pauses(pause: Pause, command: list[str], folder: Path) -> None:
    """Type a command, and pause in the second epoch of ten steps."""
    plain = Display.tick
    Display.tick = lambda *told: (plain(*told), pause(15))[0]  # type: ignore[method-assign]
    types(pause, command, folder, {}, [])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_and_the_same_command_continues(number: signal.Signals, code: int, tmp_path: Path) -> None:
    command = ["train", "digits-line", "--epochs", "3", "--json", "--out", str(tmp_path)]
    worker = Worker(types_and_pauses, command, tmp_path, errors=tmp_path / "errors")
    assert json.loads(worker.line())["epoch"] == 1
    assert worker.line() == "there\n"
    os.kill(worker.pid, number)
    worker.resume.set()
    assert worker.end(code) == ""
    assert (tmp_path / "errors").read_text() == "stopped; the same command continues\n"
    continued = call(*command)
    assert continued.exit_code == 0, continued.output
    *epochs, final = rows(continued.stdout)
    assert [row["epoch"] for row in epochs] == [2, 3]
    assert final["finished_before"] is False


def test_networks_of_ones_own_are_in_the_folder_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is searched after all others."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = "from torch import nn\ndef make(classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    (tmp_path / "a_network_of_my_own.py").write_text(text)
    (tmp_path / "colorsys.py").write_text("raise AssertionError('imported')")
    command = ("digits-standard", "--epochs", "1", "--quiet", "--code", str(tmp_path))
    result = train(tmp_path / "runs", *command, "--network", "a_network_of_my_own:make")
    assert result.exit_code == 0, result.stderr
    result = train(tmp_path / "runs", *command, "--network", "colorsys:hls_to_rgb")
    assert result.exit_code == 2
    assert "missing 3 required positional arguments" in result.stderr  # it is the one that Python brings along
