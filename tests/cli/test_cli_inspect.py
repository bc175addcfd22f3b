"""`subspaces recipes` and `subspaces data list | get | check`; what they fetch is tested with the data sets."""

from pathlib import Path

import pytest
from commands import CliRunner, Result

from subspaces.cli import main as app
from subspaces.experiments.data import SOURCES
from subspaces.experiments.training import RECIPES
from subspaces.experiments.training.recipe import all_fields


def call(*arguments: object) -> Result:
    return run("data", *arguments)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], prog_name="subspaces", env={"COLUMNS": "240"})


def test_list_shows_every_data_set() -> None:
    output = call("list").stdout
    for source in SOURCES.values():
        (line,) = (line for line in output.splitlines() if line.split()[:1] == [source.name])
        for text in (source.description, source.size, source.licence):
            assert text in line


def test_get_shows_what_it_does_and_says_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(name: str, root: Path, progress: object = lambda *_: None) -> None:
        assert (name, root) == ("digits", tmp_path)
        progress("digits.zip", 1, 2)  # type: ignore[operator]

    monkeypatch.setattr("subspaces.experiments.data.get", get)
    loud, quiet = call("get", "digits", "--data", tmp_path), call("get", "digits", "--data", tmp_path, "--quiet")
    assert loud.exit_code == quiet.exit_code == 0
    assert "digits.zip" in loud.stderr
    assert quiet.stderr == ""
    assert loud.stdout == quiet.stdout == call("check", "digits").stdout
    assert "digits: 1,200 training and 597 test images of 1 × 8 × 8" in quiet.stdout


def test_check_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train-images", "train-labels", "t10k-images", "t10k-labels"):
        (tmp_path / f"{name}-idx{3 if 'images' in name else 1}-ubyte").write_bytes(b"x" * 100)
    result = call("check", "mnist", "--data", tmp_path)
    assert result.exit_code == 1
    assert result.stdout.startswith("wrong: ")
    assert "train-images-idx3-ubyte: expected an array" in result.stdout
    monkeypatch.chdir(tmp_path)
    result = call("check", "cifar10")
    assert result.exit_code == 1
    assert "`subspaces data get cifar10 --data data`" in result.stdout


def test_what_cannot_be_fetched_says_how_to_get_it(tmp_path: Path) -> None:
    result = call("get", "imagenet", "--data", tmp_path, "--quiet")
    assert result.exit_code == 1
    assert "register at https://www.image-net.org" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["get", "check"])
def test_an_unknown_data_set_names_the_nearest(command: str) -> None:
    result = call(command, "cifar")
    assert result.exit_code == 2
    assert result.stderr == "error: no data set is called 'cifar': did you mean 'cifar10'?\n"


def test_recipes_are_listed() -> None:
    lines = run("recipes").stdout.splitlines()
    for name, recipe in RECIPES.items():
        (line,) = (line for line in lines if line.split()[:1] == [name])
        for word in (recipe.dataset, recipe.network, str(recipe.epochs)):
            assert word in line.split()
        assert recipe.definition.label() in line
        assert ("layerwise" in line.removeprefix(f"  {name}")) == getattr(recipe, "layerwise", False)


def test_a_recipe_is_shown_with_all_fields() -> None:
    output = run("recipes", "cifar10-line").stdout
    for name, value in RECIPES["cifar10-line"].to_dict().items():
        (line,) = (line for line in output.splitlines() if line.split()[:1] == [name])
        assert line.split()[1] == (str(value) or "–")
        assert all_fields()[name].metadata["help"] in line


def test_an_unknown_recipe_names_the_nearest() -> None:
    result = run("recipes", "cifar-line")
    assert result.exit_code == 2
    assert "did you mean 'cifar10-line'?" in result.stderr
