"""What a package outside of this one adds is as good as what there is: a method, a metric, an answer."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from commands import CliRunner, Result
from processes import Worker, types

import subspaces as ss
from subspaces import cli
from subspaces.evaluation import Evaluation
from subspaces.experiments.methods import METHODS, Method, setting
from subspaces.experiments.training import RECIPES, Recipe, Run, RunError

OUTSIDE = Path(__file__).parent / "outside"
MODULE = "outside_baseline"
WIDE = {"COLUMNS": "240", "TERMINAL_WIDTH": "240"}


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The method and its recipe, as long as a test lasts."""
    monkeypatch.syspath_prepend(OUTSIDE)
    sys.modules.pop(MODULE, None)
    importlib.import_module(MODULE)
    yield
    METHODS.remove("polyak")
    RECIPES.remove("digits-polyak")
    sys.modules.pop(MODULE)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli.build(), arguments, prog_name="subspaces", env=WIDE)


@pytest.mark.usefixtures("_registered")
def test_its_field_is_a_field_of_recipes_and_an_option():
    recipe = RECIPES["digits-polyak"]
    assert replace(recipe, last_epochs=3).last_epochs == 3
    assert replace(recipe, last_epochs=3).result_shape() == ss.Simplex(3)
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    with pytest.raises(ValueError, match="last_epochs=3: standard makes no use of it; it is for polyak"):
        Recipe(last_epochs=3)
    with pytest.raises(ValueError, match=r"epochs=1, last_epochs=2 with schedule='polyak': the last 2 of 1 epochs"):
        replace(recipe, epochs=1)
    shown = " ".join(call("train", "--help").output.split())
    assert "How many epochs are averaged. For polyak." in shown
    assert "polyak: the average of the last epochs" in shown
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
        with pytest.raises(TypeError, match=message):
            Recipe(method=kind.name, strength=1.0)
        METHODS.remove(kind.name)
    with pytest.raises(ValueError, match="another method is called 'line' already"):
        METHODS.add(type("Line", (Method,), {"name": "line"}))


# Installed packages

METADATA = "Metadata-Version: 2.1\nName: more-methods\nVersion: 1.0\n"


def install(folder: Path, **modules: str) -> None:
    """Put a package as pip leaves it: its modules, each with an entry point."""
    info = folder / "more_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text("\n".join(["[subspaces]", *(f"{name} = {name}" for name in modules), ""]))
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


def test_an_installed_package_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    install(tmp_path, more="raise RuntimeError('not\\ntoday')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["subspaces", "recipes"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    said = capsys.readouterr().err
    assert said == "error: more-methods (more = 'more') failed to import: not today; fix or uninstall it\n"


class Caller:
    """Calls Python in a folder of its own, where the package is on the path and nothing else is said of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, package = folder / "here", folder / "installed"
        self.folder.mkdir()
        package.mkdir()
        install(package, **{file.stem: file.read_text() for file in OUTSIDE.glob("*.py")})
        self.path = [str(Path(ss.__file__).parents[1]), str(package)]

    def python(self, *arguments: str) -> str:
        """Return what Python prints, in single spaces."""
        environment = {**os.environ, **WIDE, "PYTHONPATH": os.pathsep.join(self.path)}
        settings = {"cwd": self.folder, "env": environment, "capture_output": True, "text": True}
        done = subprocess.run([sys.executable, *arguments], check=False, **settings)
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    def __call__(self, *arguments: str) -> str:
        """Return what the command line prints, in a process that has the imports of others behind it."""
        return " ".join(Worker(types, arguments, self.folder, WIDE, self.path).end().split())


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Caller:
    return Caller(tmp_path_factory.mktemp("outside"))


@pytest.fixture(scope="module")
def measured(caller: Caller) -> tuple[str, str]:
    """The folder of a run of the package's recipe, and what its evaluation prints."""
    caller.python("-m", "subspaces", "train", "digits-polyak", "--epochs", "2", "--device", "cpu", "--quiet")
    (folder,) = (caller.folder / "runs").glob("digits-polyak-*")
    ways = ("--answers", "midpoint", "--answers", "thirds")
    return str(folder), caller("evaluate", str(folder), *ways, "--quiet", "--device", "cpu")


def test_what_it_adds_is_trained_evaluated_drawn_and_reported(caller: Caller, measured: tuple[str, str]):
    run, printed = measured
    assert "sureness %" in printed
    record = json.loads((Path(run) / "evaluation.json").read_text())
    (meaning,) = (each["meaning"] for each in record["metrics"] if each["name"] == "sureness")
    assert [answer["name"] for answer in record["answers"]] == ["midpoint", "thirds"]
    for answer, words in zip(record["answers"], ("average of 2", "ensemble of thirds"), strict=True):
        places = (answer["role"], answer["alphas"], answer["average"], "test")
        (row,) = (r for r in record["rows"] if (r["role"], r["alphas"], r["average"], r["data"]) == places)
        assert 0 < row["metrics"]["sureness"] < 1
        assert f"{100 * row['metrics']['sureness']:.2f}" in printed.partition(f" {words} – ")[2].split()[:6]
    assert caller("plot", "along", run, "-o", "a.png", "--metric", "sureness") == "wrote a.png"
    assert (caller.folder / "a.png").read_bytes().startswith(b"\x89PNG")
    assert caller("report", run, "-o", "r.html").startswith("wrote r.html")
    page = (caller.folder / "r.html").read_text()
    for words in ("Sureness", meaning, "ensemble of thirds"):
        assert words in page


def test_without_it_its_run_is_not_called_damaged(measured: tuple[str, str]):
    with pytest.raises(RunError, match=r"unknown method 'polyak': .*; import or install the package") as error:
        Run.open(Path(measured[0]))
    assert "damaged" not in str(error.value)
    assert Evaluation.load(Path(measured[0])).training is not None  # which is all that tables and figures need
