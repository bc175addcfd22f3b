"""The command line, called in a folder that came from elsewhere, runs nothing that lies there."""

import gc
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import subspaces as ss
from subspaces import importing

ROOT = Path(ss.__file__).parents[1]
MODULE = [sys.executable, "-m", "subspaces"]
SCRIPT = [str(Path(sys.executable).with_name("subspaces"))]


def call(folder: Path, *command: object, **environment: str) -> str:
    """Run a command in a folder and return all that it says."""
    variables = {**os.environ, "PYTHONPATH": "", "MARK": str(folder / "mark.txt"), **environment}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


# The search path alone: a package that is nothing but its first import.

STUB = """
from subspaces import importing
import json, subprocess, sys

if __name__ == "subspaces":
    ask = "import sys, json; print(json.dumps(sys.path))"
    started = subprocess.run([sys.executable, "-c", ask], capture_output=True, check=True).stdout
    print(json.dumps({"path": sys.path, "started": json.loads(started)}))
"""


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """A folder with the stub, which is also a program that is not the command line."""
    package = tmp_path / "installed" / "subspaces"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(STUB)
    (package / "__main__.py").touch()
    shutil.copy(str(importing.__file__), package)
    (package.parent / "another.py").write_text("import subspaces")
    (package.parent / "subspaces.exe").write_text("import subspaces")
    (tmp_path / "here").mkdir()
    return package.parent


def searched(stub: Path, here: Path, *command: object, path: str = "{stub}", **environment: str) -> dict[str, Any]:
    """Return the search path of a process, and of a process that it started, without Python's own folders."""
    told = call(here, sys.executable, *command, PYTHONPATH=path.format(stub=stub, here=here), **environment)
    ours = ("", str(here), str(stub))
    return {who: [one for one in found if one in ours] for who, found in json.loads(told).items()}


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("-m subspaces", "{stub}"),
        ("-msubspaces a -m b", ":{stub}"),
        ("-Bm subspaces -m other", "{stub}:"),
        ("-W error -m subspaces.__main__", "{stub}::"),
    ],
)
def test_the_command_does_not_search_the_current_folder(stub: Path, tmp_path: Path, command: str, path: str) -> None:
    found = searched(stub, tmp_path / "here", *command.split(), path=path)
    assert found == {"path": [str(stub)], "started": [str(stub)]}


def test_the_installed_program_does_not_either(stub: Path, tmp_path: Path) -> None:
    found = searched(stub, tmp_path / "here", stub / "subspaces.exe", path=":{stub}")
    assert set(found["path"]) == {str(stub)} == set(found["started"])


@pytest.mark.parametrize("path", ["{stub}:{here}", ":{stub}:{here}", "{stub}:."])
def test_a_folder_that_the_user_names_is_searched(stub: Path, tmp_path: Path, path: str) -> None:
    found = searched(stub, tmp_path / "here", "-m", "subspaces", path=path)
    assert all(sorted(one) == [str(tmp_path / "here"), str(stub)] for one in found.values())
    assert len(found) == 2


def test_safe_by_the_users_own_choice(stub: Path, tmp_path: Path) -> None:
    """Then the first entry is not the current folder, and stays."""
    for command, environment in ((["-P"], {}), ([], {"PYTHONSAFEPATH": "1"})):
        found = searched(stub, tmp_path / "here", *command, "-m", "subspaces", **environment)
        assert found["path"] == [str(stub)]


def test_other_programs_keep_their_path(stub: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    assert searched(stub, here, "-m", "another", path=":{stub}") == {
        "path": [str(here), str(here), str(stub)],
        "started": ["", str(here), str(stub)],
    }
    assert searched(stub, here, "-c", "import subspaces")["path"] == ["", str(stub)]
    assert searched(stub, here, stub / "another.py")["path"] == [str(stub), str(stub)]


def test_in_the_projects_own_folder_that_is_searched_last(stub: Path) -> None:
    """New processes are given the path of this one, and find the package."""
    found = json.loads(call(stub, sys.executable, "-m", "subspaces"))
    assert found["path"][-1] == str(stub)
    assert found["path"].count(str(stub)) == 1
    assert len(found["path"]) > 2


# The real program, with traps.

MARK = "import os\nwith open(os.environ['MARK'], 'a') as file:\n    file.write(f'{__name__} ')\n"
NETWORK = """
import multiprocessing, os
from torch import nn

def make(classes):
    if not os.path.exists("started"):
        child = multiprocessing.get_context("spawn").Process(target=os.mkdir, args=["started"])
        child.start()
        child.join()
        assert os.path.exists("started")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trap for everything that could be imported."""
    folder = tmp_path_factory.mktemp("received")
    names = {"timm", "torchvision", *sys.stdlib_module_names, *metadata.packages_distributions()} - {"subspaces"}
    assert names > {"torch", "numpy", "sklearn", "matplotlib", "typer", "PIL", "json", "typing", "multiprocessing"}
    for name in names - {"plotly"}:
        (folder / f"{name}.py").write_text(MARK)
    plotly = folder / "plotly"
    (plotly / "package_data").mkdir(parents=True)
    (plotly / "__init__.py").write_text(MARK)
    for place in (folder, plotly, plotly / "package_data"):
        (place / "plotly.min.js").write_text("alert('uninvited')")
    (folder / "matplotlibrc").write_text("backend: module://colorsys\n")
    code = folder / "code"
    code.mkdir()
    (code / "mine.py").write_text(NETWORK)
    (code / "sklearn.py").write_text(MARK)
    return folder


def trapped(folder: Path, *command: object) -> str:
    """Run a command in a folder of traps; none of them may be imported."""
    told = call(folder, *command, PYTHONPATH=str(ROOT), COLUMNS="200")
    assert not (folder / "mark.txt").exists(), f"imported: {(folder / 'mark.txt').read_text()}"
    return told


def test_the_traps_work(received: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(received, tmp_path / "copy")
    with pytest.raises(AssertionError, match="imported: colorsys plotly sklearn"):
        trapped(folder, sys.executable, "-c", "import colorsys, plotly, sklearn")


def test_nothing_of_a_received_folder_is_run(received: Path) -> None:
    """Nor by the processes that a network of the user's own starts. The page has plotly's own script."""
    network = ("--network", "mine:make", "--code", "code")
    compare = ("compare", "digits-standard", "digits-line", "--seeds", "0", *network, "--epochs", "1")
    told = trapped(received, *MODULE, *compare, "--runs", ".", "--out", "compared", "--quiet", "--no-tensorboard")
    assert "accuracy" in told
    assert (received / "compared" / "comparison.png").is_file()
    (run,) = (path.name for path in received.glob("digits-line-*"))
    trapped(received, *SCRIPT, "report", run, "-o", "page.html")
    for page in ("page.html", "compared/report.html"):
        text = (received / page).read_text()
        assert "uninvited" not in text
        assert "plotly.js v" in text


def test_what_was_imported_is_never_looked_through_for_garbage() -> None:
    before = gc.get_freeze_count()
    try:
        importing.imported()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
        importing.ended()
        assert not gc.isenabled()
    finally:
        gc.enable()
