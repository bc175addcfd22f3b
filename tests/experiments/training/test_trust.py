"""A network factory that only a folder names is called with trust alone."""

import dataclasses
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import CliRunner
from helpers import resealed
from training_cases import DIGITS, train_one

import subspaces as ss
from subspaces.cli import main as app
from subspaces.experiments.evaluating.evaluate import evaluate_together
from subspaces.experiments.studies.compare import ComparisonPlan
from subspaces.experiments.studies.setting import Setting
from subspaces.experiments.training import Execution, Run, RunError

MODULE = "a_network_for_trust"
CODE = """
import math
from torch import nn

def make(classes, image_shape, dropout):
    flat = nn.Linear(math.prod(image_shape), classes)
    return nn.Sequential(nn.Flatten(), flat, nn.Dropout(dropout))
"""
RECIPE = dataclasses.replace(DIGITS, name="trusted", epochs=1, network=f"{MODULE}:make", dropout=0.1)
ASKS = f"names the network '{MODULE}:make', .*import module '{MODULE}' and call 'make': pass --trust .* if you trust it"
QUIET: dict[str, Any] = {"device": "cpu", "progress": False}


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module that can be imported, and was not yet."""
    folder = tmp_path_factory.mktemp("module")
    (folder / f"{MODULE}.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    out = tmp_path_factory.mktemp("runs")
    return [train_one(dataclasses.replace(RECIPE, seed=seed), out) for seed in (0, 1)]


@pytest.fixture
def folder(trained: list[Run], tmp_path: Path) -> Path:
    """A copy of a run."""
    return Path(shutil.copytree(trained[0].folder, tmp_path / "received"))


@pytest.fixture
def not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a process that has not imported the module."""
    monkeypatch.delitem(sys.modules, MODULE, raising=False)


@pytest.mark.usefixtures("not_imported")
def test_nothing_that_a_folder_names_is_imported(folder: Path, trained: list[Run]) -> None:
    others = [str(run.folder) for run in trained]
    for call in (
        lambda: ss.evaluate(folder, **QUIET),
        lambda: ss.evaluate([trained[0], folder], **QUIET),
        lambda: ss.evaluate(trained[0], through=others, **QUIET),
        lambda: ss.evaluate(folder, answers=["dropout"], **QUIET),
        lambda: evaluate_together([others], to=folder.parent, **QUIET),
    ):
        with pytest.raises(RunError, match=ASKS):
            call()
    assert MODULE not in sys.modules
    assert not (folder / "evaluation.json").exists()


@pytest.mark.usefixtures("not_imported")
def test_with_trust_it_is(folder: Path) -> None:
    assert ss.evaluate(folder, trust=True, **QUIET).rows
    assert MODULE in sys.modules
    found = ss.evaluate(folder, trust=True, answers=["dropout"], dropout_passes=1, **QUIET)
    assert found["dropout"].accuracy > 0


@pytest.mark.usefixtures("not_imported")
def test_on_the_command_line(folder: Path) -> None:
    command = ["evaluate", str(folder), "--device", "cpu", "--quiet"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {folder}: it names the network '{MODULE}:make'")
    assert result.stderr.count("\n") == 1
    assert MODULE not in sys.modules
    assert CliRunner().invoke(app, [*command, "--trust"]).exit_code == 0


@pytest.mark.usefixtures("not_imported")
def test_a_network_that_the_caller_names_needs_no_trust(trained: list[Run], tmp_path: Path) -> None:
    """As with the runs that `train` and `compare` return, also those that were finished before."""
    out = shutil.copytree(trained[0].folder.parent, tmp_path / "runs")
    runs = ss.train(RECIPE, seeds=[0, 1], out=out, device="cpu", show="quiet", tensorboard=False)
    (tmp_path / "table").mkdir()
    setting = Setting(out, tmp_path / "table", dropout_passes=1, show="quiet", execution=Execution(device="cpu"))
    plan = ComparisonPlan(setting, [run.recipe for run in runs], None, scaled=False)
    answers = [entry.words for entry in plan.measure(runs).entries]
    assert len(answers) == 3  # alone, MC-dropout, and the ensemble of both


@pytest.mark.parametrize("network", ["os:abort", "sys:exit", f"{MODULE}.sub:make", "subspaces.cli:main"])
def test_no_factory_is_called_without_trust(folder: Path, network: str) -> None:
    resealed(folder / "config.json", lambda fields: fields.update(network=network))
    with pytest.raises(RunError, match=f"names the network '{network}'"):
        ss.evaluate(folder, **QUIET)
