"""Runs on the user's own images: what names them, what they refuse, and one from the files to the page."""

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commands import CliRunner, Result
from helpers import resealed
from PIL import Image
from torch import nn
from training_cases import DIGITS, train_one

import subspaces as ss
from subspaces.cli import main as app
from subspaces.experiments.data import DataError, DataWarning, fingerprint_of
from subspaces.experiments.evaluating.evaluate import evaluate_together
from subspaces.experiments.studies.compare import ComparisonPlan
from subspaces.experiments.studies.setting import Setting
from subspaces.experiments.training import Execution, Recipe, Run, RunError
from subspaces.experiments.training.api import configure

COLOURS = {"rose é": (140, 120, 120), "blue bell": (120, 120, 140), "fern": (120, 140, 120)}
DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "own-images.md"
SMALL: dict[str, Any] = {"image_size": 16, "network": f"{__name__}:tiny", "epochs": 4, "batch": 16}
QUIET: dict[str, Any] = {"device": "cpu", "show": "quiet"}


def tiny(classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    body = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(body, nn.Flatten(), nn.Linear(8, classes))


def flowers(root: Path, per_class: int = 12, seed: int = 0) -> Path:
    """Write noisy images of three colours and different sizes."""
    random = np.random.default_rng(seed)
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            noise = random.integers(-100, 100, (18 + i, 24, 3))
            Image.fromarray((noise + colour).clip(0, 255).astype(np.uint8)).save(root / name / f"{i}.png")
    return root


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], prog_name="subspaces", env={"COLUMNS": "240"})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A folder of images and a line that was trained on it."""
    root = tmp_path_factory.mktemp("own")
    flowers(root / "flowers")
    Image.new("RGB", (9, 9)).save(root / "flowers" / "fern" / "spoiled.png")
    (root / "flowers" / "fern" / "spoiled.png").write_bytes(b"not an image")
    with pytest.warns(DataWarning, match=r"1 of 37 .*spoiled\.png"):
        (run,) = ss.train("folder-line", data=root / "flowers", out=root / "runs", learning_rate=0.05, **SMALL, **QUIET)
    return root, run


def test_from_the_files_to_the_page(trained: tuple[Path, Run]) -> None:
    root, run = trained
    assert run.recipe.fingerprint == fingerprint_of(root / "flowers")
    assert str(root) not in (run.folder / "config.json").read_text()
    with pytest.warns(DataWarning, match=r"spoiled\.png"):
        evaluation = ss.evaluate(run, data=root / "flowers", device="cpu", progress=False)
    assert evaluation["midpoint"].accuracy > 1 / 3
    assert evaluation.dataset["name"] == "flowers (folder)"
    assert evaluation.dataset["classes"] == ["blue bell", "fern", "rose é"]
    assert evaluation.examples is not None
    page = root / "page.html"
    evaluation.report(page)
    text = page.read_text()
    assert "<title>flowers (folder): line" in text
    for name in COLOURS:
        assert name in text or json.dumps(name)[1:-1] in text
    assert text.count("data:image/webp;base64,") >= len(evaluation.examples.labels) > 0


def test_the_code_of_the_document_runs(trained: tuple[Path, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    root, _ = trained
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp := root / "document").mkdir()
    flowers(tmp / "flowers", per_class=3)
    monkeypatch.chdir(tmp)
    short = SimpleNamespace(
        train=lambda *given, **named: ss.train(*given, **{**named, **SMALL, **QUIET}),
        evaluate=lambda *given, **named: ss.evaluate(*given, **named, device="cpu", progress=False),
        data=ss.data,
    )
    names: dict[str, Any] = {"ss": short}
    exec(code, names)
    assert names["images"].image_shape == (3, 64, 64)
    assert (tmp / "flowers.html").is_file()


# Which run it is


def test_folders_sizes_and_views_are_different_runs(tmp_path: Path) -> None:
    recipes: list[Recipe] = []
    for place, seed in (("a/flowers", 0), ("b/flowers", 1), ("c/other", 0)):
        recipes += configure("folder-line", None, {}, flowers(tmp_path / place, per_class=2, seed=seed))[0]
    changes: list[dict[str, Any]] = [{"image_size": 32}, {"augment": "resized-crop", "pad": 0}, {"pad": 0}]
    recipes += [dataclasses.replace(recipes[0], **each) for each in changes]
    assert len({one.key for one in recipes}) == len(recipes)
    assert {one.data_name for one in recipes} == {"flowers (folder)", "other (folder)"}
    for one in recipes:
        assert Recipe.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    with pytest.raises(RunError, match=r"flowers:6:.* and .*flowers:6:.*: expected runs on one data set"):
        ss.plot("training", [Run.under(tmp_path, one) for one in begun(tmp_path, recipes[:2])])


def begun(out: Path, recipes: list[Recipe]) -> list[Recipe]:
    """Make the folders of runs that have only begun."""
    for one in recipes:
        Run.under(out, one).start(Execution(device="cpu").resolved())
    return recipes


def test_the_images_may_be_named_and_are_compared(tmp_path: Path) -> None:
    root = flowers(tmp_path / "flowers", per_class=2)
    (one,), _ = configure("folder-line", None, {"fingerprint": "flowers:9:0123456789ab"}, root)
    assert one.fingerprint == "flowers:9:0123456789ab"
    with pytest.raises(DataError, match="flowers has other image files"):
        ss.train(one, data=root, out=tmp_path / "runs", **QUIET)
    assert not list(tmp_path.glob("runs/*/result.json"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--dataset", "cifar10", "--image-size", "32"], "--image-size=32: it is for your own images"),
        (["--image-size", "4"], "--image-size=4: expected 8 to 1024 pixels"),
        (["--augment", "resized-crop"], "--augment='resized-crop' with pad=4: expected one way to crop; set pad to 0"),
        (["--augment", "resize"], "did you mean 'resized-crop'"),
        (["--fingerprint", "x"], "--fingerprint='x': expected NAME:FILES:DIGEST"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(tmp_path: Path, options: list[str], words: str) -> None:
    root = flowers(tmp_path / "flowers", per_class=2)
    failed = call("train", "folder-line", "--data", root, "--out", tmp_path / "runs", "--device", "cpu", *options)
    assert failed.exit_code == 2, failed.output
    assert words in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["flowers"]


# A network factory that only a folder names is called with trust alone


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
UNSEEN: dict[str, Any] = {"device": "cpu", "progress": False}


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module that can be imported, and was not yet."""
    folder = tmp_path_factory.mktemp("module")
    (folder / f"{MODULE}.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    out = tmp_path_factory.mktemp("runs")
    return [train_one(dataclasses.replace(RECIPE, seed=seed), out) for seed in (0, 1)]


@pytest.fixture
def folder(trusted: list[Run], tmp_path: Path) -> Path:
    """A copy of a run."""
    return Path(shutil.copytree(trusted[0].folder, tmp_path / "received"))


@pytest.fixture
def not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a process that has not imported the module."""
    monkeypatch.delitem(sys.modules, MODULE, raising=False)


@pytest.mark.usefixtures("not_imported")
def test_nothing_that_a_folder_names_is_imported(folder: Path, trusted: list[Run]) -> None:
    others = [str(run.folder) for run in trusted]
    for call in (
        lambda: ss.evaluate(folder, **UNSEEN),
        lambda: ss.evaluate([trusted[0], folder], **UNSEEN),
        lambda: ss.evaluate(trusted[0], through=others, **UNSEEN),
        lambda: evaluate_together([others], to=folder.parent, **UNSEEN),
    ):
        with pytest.raises(RunError, match=ASKS):
            call()
    assert MODULE not in sys.modules
    assert not (folder / "evaluation.json").exists()


@pytest.mark.usefixtures("not_imported")
def test_with_trust_it_is(folder: Path) -> None:
    assert ss.evaluate(folder, trust=True, **UNSEEN).rows
    assert MODULE in sys.modules


@pytest.mark.usefixtures("not_imported")
def test_a_network_that_the_caller_names_needs_no_trust(trusted: list[Run], tmp_path: Path) -> None:
    """As with the runs that `train` and `compare` return, also those that were finished before."""
    out = shutil.copytree(trusted[0].folder.parent, tmp_path / "runs")
    runs = ss.train(RECIPE, seeds=[0, 1], out=out, device="cpu", show="quiet")
    (tmp_path / "table").mkdir()
    setting = Setting(out, tmp_path / "table", show="quiet", execution=Execution(device="cpu"))
    plan = ComparisonPlan(setting, [run.recipe for run in runs], None, scaled=False)
    answers = [entry.words for entry in plan.measure(runs).entries]
    assert len(answers) == 2  # alone, and the ensemble of both


@pytest.mark.parametrize("network", ["os:abort", "sys:exit", f"{MODULE}.sub:make", "subspaces.cli:main"])
def test_no_factory_is_called_without_trust(folder: Path, network: str) -> None:
    resealed(folder / "config.json", lambda fields: fields.update(network=network))
    with pytest.raises(RunError, match=f"names the network '{network}'"):
        ss.evaluate(folder, **UNSEEN)
