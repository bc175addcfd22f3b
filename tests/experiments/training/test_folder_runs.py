"""Runs on the user's own images: what names them, what they refuse, and one from the files to the page."""

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from commands import CliRunner, Result
from PIL import Image
from torch import nn

import subspaces as ss
from subspaces.cli import main as app
from subspaces.experiments.data import DataError, DataWarning, fingerprint_of
from subspaces.experiments.training import Recipe, Run, RunError
from subspaces.experiments.training.api import configure
from subspaces.experiments.training.execution import Execution

COLOURS = {"rose é": (140, 120, 120), "blue bell": (120, 120, 140), "fern": (120, 140, 120)}
DOCUMENT = Path(__file__).parents[3] / "docs" / "own-images.md"
SMALL: dict[str, Any] = {"image_size": 16, "network": f"{__name__}:tiny", "epochs": 4, "batch": 16}
QUIET: dict[str, Any] = {"device": "cpu", "show": "quiet", "tensorboard": False}


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


# Views
