"""What studies keep beside the runs is measured anew for other families and precisions."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import retrained

from subspaces.experiments.evaluating.run_subject import run_subjects
from subspaces.experiments.kept import Kept
from subspaces.experiments.studies.instability import Mixing
from subspaces.experiments.training import Execution


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = tmp_path_factory.mktemp("runs")
    return [retrained.train("standard", out, seed=at) for at in (1, 2)]


def mixed(folders: list[Path], kept: Path, precision: str = "auto", draws: int = 1) -> list[Any]:
    """What is measured of branches, by kind."""
    execution = Execution(device="cpu", precision=precision).resolved()  # type: ignore[arg-type]
    bench = run_subjects(None, execution)
    made = Mixing([bench(retrained.opened(folder)) for folder in folders], draws, Kept(kept), precision, {})
    return list(made.measure())


def test_mixtures_of_a_branch_that_was_trained_anew(trained: list[Path], tmp_path: Path) -> None:
    folders = [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in trained]
    before = mixed(folders, tmp_path / "a.json")
    retrained.anew(folders[1])
    found = mixed(folders, tmp_path / "a.json")
    assert found == mixed(folders, tmp_path / "fresh.json")
    same = [kind for (kind, old), (_, new) in zip(before, found, strict=True) if old == new]
    assert same == ["branch"]  # the first, which was not


def test_mixtures_in_another_precision(trained: list[Path], tmp_path: Path) -> None:
    before = mixed(trained, tmp_path / "a.json", "float32")
    found = mixed(trained, tmp_path / "a.json", "bfloat16")
    assert found == mixed(trained, tmp_path / "fresh.json", "bfloat16")
    assert all(old != new for (_, old), (_, new) in zip(before, found, strict=True))
