"""Small finished runs that the tests of evaluation share; each test gets copies of its own."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import retrained
from evaluation_cases import Runs

import subspaces as ss


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of runs on digits by name: one of each shape, some with held-out images, and one of another network."""
    out = tmp_path_factory.mktemp("runs")
    settings = {"out": out, "show": "quiet", "device": "cpu", "epochs": 2}
    wanted = {
        "standard": {"recipe": "digits-standard"},
        "other": {"recipe": "digits-standard", "seed": 1},
        "line": {"recipe": "digits-line"},
        "held-out": {"recipe": "digits-line", "validation": 200},
        "curve": {"recipe": "digits-curve"},
        "simplex": {"recipe": "digits-simplex"},
        "lenet": {"recipe": "digits-standard", "network": "lenet", "epochs": 1},
    }
    return {name: ss.train(**{**settings, **changes})[0].folder for name, changes in wanted.items()}


@pytest.fixture
def runs(trained: dict[str, Path], tmp_path: Path) -> Runs:
    """Return a function that copies the named runs into the test's folder."""

    def copies(*names: str) -> list[Path]:
        return [Path(shutil.copytree(trained[name], tmp_path / trained[name].name)) for name in names]

    return copies


SMALL: dict[str, dict[str, Any]] = {
    "first": {"recipe": "standard"},
    "second": {"recipe": "standard", "seed": 1},
    "third": {"recipe": "standard", "seed": 2},
    "curve": {"recipe": "curve"},
    "simplex": {"recipe": "simplex", "seed": 5},
}


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that trains a run of `retrained` when it is first asked for; tests that change it copy it."""
    out = tmp_path_factory.mktemp("small")
    return cache(lambda name: retrained.train(out=out, **SMALL[name]))
