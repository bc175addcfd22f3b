"""The distributions: what they hold, and that the wheel is enough without the packages of any extra.

The environment that the wheel is installed into shares with this one the packages that it requires, and what these
require, and nothing else. `make wheel-test` installs all of them anew.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import subspaces

pytestmark = pytest.mark.timeout(900)  # fifteen seconds of work, in processes that wait where others train
ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "subspaces"
KEPT = ("benchmarks", "docs", "examples", "results", "subspaces", "tests")


def sources() -> set[str]:
    """Return the files that git tracks, or which a source distribution holds, without those of hosts and tools."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("the files are compared with those that git tracks, and this is not a repository")
    return {name for name in listed.stdout.split("\0") if name and not name.startswith(".") and (ROOT / name).exists()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build as `make dist` does: the source distribution, and from it the wheel."""
    tree, out = tmp_path_factory.mktemp("tree") / "project", tmp_path_factory.mktemp("dist")
    tree.mkdir()
    for name in KEPT:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.iterdir():
        if file.is_file() and not file.name.startswith("."):
            shutil.copy(file, tree)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree]
    run(command, out)
    return out


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Run a command in a folder, without Python's settings, and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def wheel_of(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def test_the_source_distribution_holds_what_git_tracks(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {member.name.partition("/")[2] for member in file.getmembers() if member.isfile()}
    assert sources() - names == set()
    made = {"PKG-INFO", "setup.cfg"}
    assert {name for name in names - sources() - made if not name.startswith("subspaces.egg-info/")} == set()


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(wheel_of(built)) as file:
        names = set(file.namelist())
    package = {str(file.relative_to(ROOT)) for file in PACKAGE.rglob("*") if file.is_file()}
    package = {name for name in package if not name.endswith(".pyc")}
    assert {Path(name).suffix for name in package} >= {".py", ".toml", ".jinja", ".html", ".css", ".js", ".typed"}
    about = f"subspaces-{subspaces.__version__}.dist-info"
    assert names - {name for name in names if name.startswith(f"{about}/")} == package
    assert f"{about}/licenses/LICENSE" in names
    assert wheel_of(built).name == f"subspaces-{subspaces.__version__}-py3-none-any.whl"


def required() -> dict[str, metadata.Distribution]:
    """Return what the package requires without extras, and all that is required by that, as it is installed here."""
    found: dict[str, metadata.Distribution] = {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    left = [(each, "") for each in project["dependencies"]]
    while left:
        text, extra = left.pop()
        need = Requirement(text)
        name = re.sub(r"[-_.]+", "-", need.name).lower()
        if need.marker and not need.marker.evaluate({"extra": extra}):
            continue
        if name not in found:
            found[name] = metadata.distribution(name)
            left += [(each, "") for each in found[name].requires or []]
        left += [(each, extra) for extra in need.extras for each in found[name].requires or [] if "extra" in each]
    return found


def share(environment: Path) -> None:
    """Let an environment have what the package requires, by links to where it is installed here."""
    (site,) = environment.glob("lib/python*/site-packages")
    for each in required().values():
        for top in {file.parts[0] for file in each.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(each.locate_file(top))))


def test_the_wheel_is_enough_without_extras(built: Path, tmp_path: Path) -> None:
    """The README's ten lines, the demo with less, and the help of every command."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    share(environment)
    (site,) = environment.glob("lib/python*/site-packages")
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet"]
    run([*pip, "--no-compile", "--no-deps", "--no-index", wheel_of(built)], tmp_path)
    about = f"subspaces-{subspaces.__version__}.dist-info"
    assert {each.name for each in site.glob("subspaces*")} == {"subspaces", about}
    printed = run([python, "-BI", ROOT / "tests" / "installed.py", ROOT / "README.md", "2", "2"], tmp_path)
    assert "prediction by" in printed
    assert int(printed.split(" helps")[0]) > 10
