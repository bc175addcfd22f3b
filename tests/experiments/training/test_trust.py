"""Runs are signed by who trains them; a network factory that somebody else's run names is not called."""

import dataclasses
import os
import shutil
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import unsealed
from training_cases import DIGITS, train_one
from typer.testing import CliRunner

import subspaces as ss
from subspaces.cli import app
from subspaces.experiments.evaluating.ensembles import evaluate_together
from subspaces.experiments.studies.compare import measure
from subspaces.experiments.studies.setting import Setting
from subspaces.experiments.training import Execution, Recipe, Run, RunError, seals, trust

MODULE = "a_network_for_trust"
CODE = """
import math
from torch import nn

def make(classes, image_shape, dropout):
    flat = nn.Linear(math.prod(image_shape), classes)
    return nn.Sequential(nn.Flatten(), flat, nn.Dropout(dropout))
"""
RECIPE = dataclasses.replace(DIGITS, name="trusted", epochs=1, network=f"{MODULE}:make", dropout=0.1)
ASKS = f"names the network '{MODULE}:make' .*import module '{MODULE}' and call 'make': pass --trust .* if you trust it"
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
    """A copy of a run that this user has trained."""
    return Path(shutil.copytree(trained[0].folder, tmp_path / "received"))


@pytest.fixture
def another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be somebody else, who has a key too, and has not imported the module."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of somebody else"))
    assert trust._new_key() is not None
    monkeypatch.delitem(sys.modules, MODULE, raising=False)


def config(folder: Path) -> dict[str, Any]:
    return unsealed(folder / "config.json")


def change(folder: Path, **fields: Any) -> None:
    """Change a configuration as one does who knows how to seal it."""
    recipe = Recipe.from_dict({**trust.separated(config(folder))[0], **trust.separated(fields)[0]})
    seals.write_json(folder / "config.json", {**config(folder), **fields}, recipe.key)


def test_who_trained_a_run_may_measure_it(folder: Path) -> None:
    found = config(folder)
    assert len(found.pop("signature")) == 64
    assert found == RECIPE.to_dict()
    record = ss.evaluate(folder, **QUIET)
    assert record.rows


def test_another_name_leaves_the_signature(folder: Path) -> None:
    change(folder, name="renamed")
    assert ss.evaluate(folder, **QUIET)


@pytest.mark.usefixtures("another_user")
def test_nothing_that_somebody_elses_run_names_is_imported(folder: Path, trained: list[Run]) -> None:
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


@pytest.mark.usefixtures("another_user")
def test_with_trust_it_is(folder: Path) -> None:
    assert ss.evaluate(folder, trust=True, **QUIET).rows
    assert MODULE in sys.modules
    found = ss.evaluate(folder, trust=True, answers=["dropout"], dropout_passes=1, **QUIET)
    assert found["dropout"].accuracy > 0


@pytest.mark.usefixtures("another_user")
def test_on_the_command_line(folder: Path) -> None:
    command = ["evaluate", str(folder), "--device", "cpu", "--quiet"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {folder}: it names the network '{MODULE}:make'")
    assert result.stderr.count("\n") == 1
    assert MODULE not in sys.modules
    assert CliRunner().invoke(app, [*command, "--trust"]).exit_code == 0


@pytest.mark.usefixtures("another_user")
def test_a_network_that_the_caller_names_needs_no_trust(trained: list[Run], tmp_path: Path) -> None:
    """As with the runs that `train` and `compare` return, also those that were finished before."""
    out = shutil.copytree(trained[0].folder.parent, tmp_path / "runs")
    runs = ss.train(RECIPE, seeds=[0, 1], out=out, device="cpu", show="quiet", tensorboard=False)
    (tmp_path / "table").mkdir()
    setting = Setting(out, tmp_path / "table", dropout_passes=1, show="quiet", execution=Execution(device="cpu"))
    answers = [entry.words for entry in measure(runs, setting, None).entries]
    assert len(answers) == 3  # alone, MC-dropout, and the ensemble of both


@pytest.mark.parametrize(
    "network", ["os:abort", "sys:exit", f"{MODULE}:other", f"{MODULE}.sub:make", "subspaces.cli:main"]
)
def test_a_signature_is_for_one_network(folder: Path, network: str) -> None:
    change(folder, network=network)
    with pytest.raises(RunError, match=f"names the network '{network}'"):
        ss.evaluate(folder, **QUIET)


@pytest.mark.parametrize("signature", [None, 5, [], {}, "", "0" * 64, "é", "\ud800", True])
def test_what_is_no_signature(folder: Path, signature: Any) -> None:
    change(folder, signature=signature)
    with pytest.raises(RunError, match=ASKS):
        ss.evaluate(folder, **QUIET)


def test_another_recipe_is_not_signed(folder: Path) -> None:
    change(folder, seed=7)
    with pytest.raises(RunError, match=ASKS):
        ss.evaluate(folder, **QUIET)


@pytest.mark.parametrize("network", ["mlp", "timm:resnet18", "torchvision:resnet18"])
def test_other_networks_need_no_signature(network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    recipe = dataclasses.replace(DIGITS, network=network)
    assert trust.signed(recipe) == recipe.to_dict()
    assert trust.may_build(recipe, None)
    assert os.listdir(tmp_path) == []


# The key.


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the key of a user is that has none yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = trust.key_file()
    assert path == tmp_path / "config" / "subspaces" / "key"
    return path


def test_a_key_is_made_when_it_is_needed(key: Path) -> None:
    assert not trust.may_build(RECIPE, "0" * 64)
    assert not key.exists()  # to look at a run makes none
    first = trust.signed(RECIPE)["signature"]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert os.listdir(key.parent) == ["key"]
    assert len(key.read_bytes()) == 32
    assert trust.signed(RECIPE)["signature"] == first == trust.signature(RECIPE, key.read_bytes())
    key.unlink()
    assert trust.signed(RECIPE)["signature"] != first


def test_two_who_make_a_key_at_once_have_the_same(key: Path) -> None:
    barrier, made = threading.Barrier(8), []

    def make() -> None:
        barrier.wait()
        made.append(trust._new_key())

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(made) == {key.read_bytes()}
    assert len(made) == 8
    assert os.listdir(key.parent) == ["key"]


@pytest.mark.parametrize("content", [b"", b"short", b"l" * 33])
def test_a_key_of_another_length(key: Path, content: bytes) -> None:
    trust.signed(RECIPE)
    key.write_bytes(content)
    for use in (lambda: trust.signed(RECIPE), lambda: trust.may_build(RECIPE, "0" * 64)):
        with pytest.raises(
            ValueError, match=r"key: expected a key of 32 bytes; .*or remove the file: a new key is made"
        ):
            use()


@pytest.mark.parametrize(("which", "mode"), [("key", 0o620), ("key", 0o602), ("key", 0o604), ("", 0o720), ("", 0o702)])
def test_a_key_that_is_not_the_users_alone(key: Path, which: str, mode: int) -> None:
    trust.signed(RECIPE)
    (key.parent / which).chmod(mode)
    with pytest.raises(ValueError, match=f"others can read or change the key .*chmod 600 {key}"):
        trust.signed(RECIPE)


def test_a_key_of_another_user_signs_nothing(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a home is shared, or kept by sudo."""
    signature = trust.signed(RECIPE)["signature"]
    assert trust.may_build(RECIPE, signature)
    monkeypatch.setattr(os, "geteuid", lambda: key.stat().st_uid + 1)
    assert not trust.may_build(RECIPE, signature)
    assert trust.signed(RECIPE) == RECIPE.to_dict()


def test_without_a_home_to_write_to_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    run = train_one(RECIPE, tmp_path / "runs")
    assert config(run.folder) == RECIPE.to_dict()
    assert ss.evaluate(run, **QUIET)
    with pytest.raises(RunError, match=ASKS):
        ss.evaluate(run.folder, **QUIET)


def test_a_key_is_never_looked_for_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, "here")
    assert trust.key_file() is None
    assert trust.signed(RECIPE) == RECIPE.to_dict()
    assert os.listdir(tmp_path) == []
    monkeypatch.setenv("HOME", str(tmp_path))
    assert trust.key_file() == tmp_path / ".config" / "subspaces" / "key"


def test_a_key_that_is_no_file(key: Path) -> None:
    key.parent.mkdir(parents=True)
    os.mkfifo(key)  # to open it would wait for ever
    assert trust.signed(RECIPE) == RECIPE.to_dict()


def test_fields_of_later_versions_leave_old_signatures(key: Path) -> None:
    """At their default they are not signed, as they are not in the key of the run's folder."""
    signed = trust.signed(RECIPE)
    older = {name: value for name, value in signed.items() if name not in ("epsilon", "trunk", "branch")}
    fields, signature = trust.separated(older)
    assert trust.may_build(Recipe.from_dict(fields), signature)
