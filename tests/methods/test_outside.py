"""A method in a file outside of the package is as good as one of its own."""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner, Result

import subspaces as ss
from subspaces import cli
from subspaces.methods import METHODS, Method, setting
from subspaces.networks import MLP
from subspaces.reports.reading import gather
from subspaces.training import RECIPES, Recipe

MODULE = "outside_baseline"
WIDE = {"COLUMNS": "240", "TERMINAL_WIDTH": "240"}


@pytest.fixture
def _registered() -> Iterator[None]:
    """The method and its recipe, as long as a test lasts."""
    sys.modules.pop(MODULE, None)
    importlib.import_module(MODULE)
    yield
    METHODS.remove("polyak")
    RECIPES.remove("digits-polyak")
    sys.modules.pop(MODULE)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli.build(), arguments, prog_name="subspaces", env=WIDE)


def network() -> nn.Module:
    return MLP(64, 10)


@pytest.mark.usefixtures("_registered")
def test_it_is_trained_evaluated_and_labelled(tmp_path: Path):
    (run,) = ss.train("digits-polyak", epochs=2, out=tmp_path, device="cpu", show="quiet", tensorboard=False)
    assert run.recipe.rate(0) == run.recipe.rate(1) == 0.05
    assert [row["learning_rate"] for row in run.log()] == [0.05, 0.05]
    family = ss.load(run.family_file, network)
    assert family.shape == run.recipe.result_shape() == ss.Simplex(2)
    assert not torch.equal(family.omega["weights"][0], family.omega["weights"][1])
    evaluation = ss.evaluate(run, device="cpu", progress=False)
    assert [answer.name for answer in evaluation.answers] == ["midpoint", "vertices"]
    assert evaluation["midpoint"].accuracy == pytest.approx(run.result["test_accuracy"], abs=1e-6)
    assert evaluation["vertices"].nll != evaluation["midpoint"].nll
    (group,) = gather([run.folder])
    assert group.label == "polyak"
    assert run.recipe.definition.middle() == "average of 2"


@pytest.mark.usefixtures("_registered")
def test_its_field_is_a_field_of_recipes_and_an_option():
    recipe = RECIPES["digits-polyak"]
    assert replace(recipe, last_epochs=3).last_epochs == 3
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    with pytest.raises(ValueError, match="last_epochs=3: standard makes no use of it; it is for polyak"):
        Recipe(last_epochs=3)
    with pytest.raises(ValueError, match=r"epochs=1, last_epochs=2 with schedule='polyak': the last 2 of 1 epochs"):
        replace(recipe, epochs=1)
    shown = " ".join(call("train", "--help").output.split())
    assert "How many epochs are averaged. For polyak." in shown
    assert "polyak: the average of the last epochs" in shown
    assert "polyak" in call("recipes").output
    wrong = call("train", "digits-polyak", "--last-epochs", "0")
    assert (wrong.exit_code, wrong.stderr) == (2, "error: --last-epochs=0: expected at least 1\n")


def test_without_it_nothing_of_it_is_known():
    assert "--last-epochs" not in call("train", "--help").output
    with pytest.raises(ValueError, match="unknown method 'polyak'"):
        Recipe.from_dict({"method": "polyak", "last_epochs": 2})


def test_a_method_that_cannot_be_is_refused():
    @dataclass(frozen=True)
    class Mute(Method):
        name = "mute"
        meaning = "a field that nobody can explain"
        strength: float = 0.5

    @dataclass(frozen=True)
    class Clash(Method):
        name = "clash"
        meaning = "a field that every recipe has"
        epochs: int = setting(3, "Other epochs.")

    for kind, message in ((Mute, "mute does not say what strength is for"), (Clash, "clash has a field 'epochs'")):
        METHODS.add(kind)
        try:
            with pytest.raises(TypeError, match=message):
                Recipe(method=kind.name, strength=1.0)
        finally:
            METHODS.remove(kind.name)
    with pytest.raises(ValueError, match="there is a method called 'line' already"):
        METHODS.add(type("Line", (Method,), {"name": "line"}))


# Installed packages

METADATA = "Metadata-Version: 2.1\nName: more-methods\nVersion: 1.0\n"


def install(folder: Path, text: str) -> None:
    """Put a package as pip leaves it: a module and its entry point."""
    info = folder / "more_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text("[subspaces]\nmore = more_methods\n")
    (folder / "more_methods.py").write_text(text)


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("more_methods", None)


@pytest.mark.usefixtures("_installed")
def test_an_installed_package_adds_methods_to_the_command_line(tmp_path: Path, monkeypatch, capsys):
    install(tmp_path, (Path(__file__).parent / f"{MODULE}.py").read_text())
    monkeypatch.setattr(sys, "argv", ["subspaces", "recipes", "digits-polyak"])
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        METHODS.remove("polyak")
        RECIPES.remove("digits-polyak")
    assert ended.value.code == 0
    assert "last_epochs" in capsys.readouterr().out


@pytest.mark.usefixtures("_installed")
def test_an_installed_package_that_fails_is_named(tmp_path: Path, monkeypatch):
    install(tmp_path, "raise RuntimeError('not\\ntoday')")
    monkeypatch.setattr(sys, "argv", ["subspaces", "recipes"])
    with pytest.raises(SystemExit, match=r"error: more-methods \(more = 'more_methods'\) .*: not today; mend it"):
        cli.main()
