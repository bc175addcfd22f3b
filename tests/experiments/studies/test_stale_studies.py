"""What studies and comparisons keep beside the runs is measured anew for other families, statistics and precisions."""

import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest
import retrained

from subspaces.experiments.evaluating.run_subject import run_subjects
from subspaces.experiments.kept import Kept
from subspaces.experiments.studies.instability import Mixing
from subspaces.experiments.studies.integral import measure_identities as check
from subspaces.experiments.studies.setting import Setting
from subspaces.experiments.training import Execution

SETTING = Setting(show="quiet", execution=Execution(device="cpu"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("runs")
    branches = {f"branch {at}": retrained.train("standard", out, seed=at) for at in (1, 2)}
    return {"integral": retrained.train("integral", out, validation=0), **branches}


def copies(trained: dict[str, Path], to: Path, *names: str) -> list[Path]:
    return [Path(shutil.copytree(trained[name], to / trained[name].name)) for name in names]


def test_the_closed_form_of_a_line_that_was_trained_anew(trained: dict[str, Path], tmp_path: Path) -> None:
    (folder,) = copies(trained, tmp_path, "integral")
    (before,) = check([retrained.opened(folder)], SETTING)
    retrained.anew(folder)
    (found,) = check([retrained.opened(folder)], SETTING)
    assert [found] == check([retrained.opened(retrained.unmeasured(folder, tmp_path / "fresh"))], SETTING)
    assert found != before


@pytest.mark.parametrize(("name", "value"), [("BATCHES", 1), ("PRECISION", "bfloat16")])
def test_the_closed_form_with_other_settings(
    name: str, value: Any, trained: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another version of the package may have them."""
    (folder,) = copies(trained, tmp_path, "integral")
    (before,) = check([retrained.opened(folder)], SETTING)
    monkeypatch.setattr(importlib.import_module("subspaces.experiments.studies.integral"), name, value)
    assert check([retrained.opened(folder)], SETTING) != [before]


def mixed(folders: list[Path], kept: Path, precision: str = "auto", draws: int = 1) -> list[Any]:
    """What is measured of branches, by kind."""
    execution = Execution(device="cpu", precision=precision).resolved()  # type: ignore[arg-type]
    bench = run_subjects(None, execution)
    made = Mixing([bench(retrained.opened(folder)) for folder in folders], draws, Kept(kept), precision, {})
    return list(made.measure())


def test_mixtures_of_a_branch_that_was_trained_anew(trained: dict[str, Path], tmp_path: Path) -> None:
    folders = copies(trained, tmp_path, "branch 1", "branch 2")
    before = mixed(folders, tmp_path / "a.json")
    retrained.anew(folders[1])
    found = mixed(folders, tmp_path / "a.json")
    assert found == mixed(folders, tmp_path / "fresh.json")
    same = [kind for (kind, old), (_, new) in zip(before, found, strict=True) if old == new]
    assert same == ["branch"]  # the first, which was not


def test_mixtures_in_another_precision(trained: dict[str, Path], tmp_path: Path) -> None:
    folders = [trained["branch 1"], trained["branch 2"]]
    before = mixed(folders, tmp_path / "a.json", "float32")
    found = mixed(folders, tmp_path / "a.json", "bfloat16")
    assert found == mixed(folders, tmp_path / "fresh.json", "bfloat16")
    assert all(old != new for (_, old), (_, new) in zip(before, found, strict=True))
