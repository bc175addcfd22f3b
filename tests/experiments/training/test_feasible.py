"""Held-out images that are not there, and batches that a batch norm cannot take: refused before any work."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn
from training_cases import DIGITS, digits
from typer.testing import CliRunner

import subspaces as ss
from subspaces.cli import app
from subspaces.core.nested import group_sizes
from subspaces.experiments import data
from subspaces.experiments.training import Recipe, feasible

QUIET = {"device": "cpu", "show": "quiet", "tensorboard": False}
COMMANDS = {
    "train": ["train", "digits-line"],
    "compare": ["compare", "digits-standard", "digits-line"],
    "instability": ["study", "instability", "digits-standard"],
    "integral": ["study", "integral", "digits-standard", "digits-standard", "--method", "integral"],
    "noise": ["study", "noise", "digits-standard", "--dropout-rates", "0"],
}


def wide(classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """A network whose batch norm sees whole images, and so takes a batch of one."""
    body = nn.Sequential(nn.Conv2d(image_shape[0], 4, 3), nn.BatchNorm2d(4), nn.Flatten())
    return nn.Sequential(body, nn.Linear(4 * 6 * 6, classes))


def test_the_sizes_are_those_of_the_data():
    found = digits()
    assert data.size_of("digits") == (len(found.train), found.image_shape, len(found.classes))
    for name, source in data.SOURCES.items():
        size = data.size_of(name)
        assert (size is None) == (name in ("imagenet", "folder"))
        if size is not None:
            _, height, width = size.image_shape
            assert f"of {height} × {width}" in source.description
            assert f"{size.classes} classes" in source.description


@pytest.mark.parametrize(
    ("command", "dry"), [(name, dry) for name in COMMANDS for dry in (True, False) if name != "train" or not dry]
)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--validation", "1200"], "--validation=1200: expected 0 to 1199, part of the 1200 training images of digits"),
        (["--validation", "10", "--batch", "1189"], "--batch=1189: the last of 1190 images is a batch of its own"),
        (["--validation", "10", "--batch", "1"], "--batch=1: batches have one image"),
    ],
)
def test_a_wrong_command_before_any_work(tmp_path: Path, command: str, dry: bool, options: list[str], words: str):
    folders = ["--out", tmp_path / "out", *(["--runs", tmp_path / "runs"] if command != "train" else [])]
    arguments = [*COMMANDS[command], *options, *folders, *(["--dry-run"] if dry else []), "--device", "cpu"]
    result = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="subspaces")
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_is_advised_can_be_trained(tmp_path: Path):
    with pytest.raises(ValueError, match=r"batch=1199: .* mlp cannot be trained on one: choose --batch 1198$"):
        ss.train(DIGITS, batch=1199, epochs=1, out=tmp_path, **QUIET)
    (run,) = ss.train(DIGITS, batch=1198, epochs=1, out=tmp_path, **QUIET)
    assert run.finished


def test_groups_of_one_image(tmp_path: Path):
    line = dataclasses.replace(DIGITS, method="line", samples=3, epochs=1)
    with pytest.raises(ValueError, match=r"batch=200: a batch of 4 is cut into 3 groups \(--samples\), some of one"):
        feasible.check_batches(line, data.Size(1004, (1, 8, 8), 10))
    with pytest.raises(ValueError, match="lower --samples"):
        feasible.check_batches(dataclasses.replace(line, samples=700), data.Size(1200, (1, 8, 8), 10))
    feasible.check_batches(line, data.Size(1006, (1, 8, 8), 10))


def test_a_network_that_takes_single_images_may_have_them(tmp_path: Path):
    recipe = dataclasses.replace(DIGITS, network=f"{__name__}:wide", batch=1199, epochs=1)
    (run,) = ss.train(recipe, out=tmp_path, **QUIET)
    assert run.finished
    lenet = dataclasses.replace(DIGITS, network="lenet", batch=1)  # it has no batch norm
    feasible.check([lenet], None)


def test_the_random_numbers_of_the_caller_are_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="choose --batch"):
        feasible.check([dataclasses.replace(DIGITS, batch=1)], None)
    assert torch.equal(torch.rand(3), expected)


def test_files_are_counted_where_they_are(tmp_path: Path):
    for part, count in (("train", 3), ("val", 1)):
        for kind in ("a", "b"):
            (tmp_path / part / kind).mkdir(parents=True)
            for index in range(count):
                Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / part / kind / f"{index}.png")
    recipe = Recipe(dataset="imagenet", validation=6, network="resnet18", pad=0)
    with pytest.raises(ValueError, match="validation=6: expected 0 to 5, part of the 6 training images of imagenet"):
        feasible.check([recipe], tmp_path)
    feasible.check([recipe], tmp_path / "nowhere")  # which is said when the files are needed
    feasible.check([dataclasses.replace(recipe, validation=2)], tmp_path)


@given(st.integers(1, 300), st.integers(1, 320), st.integers(1, 12))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_the_smallest_group_is_that_of_the_batches(images: int, batch: int, samples: int):
    sizes = data.resident.batch_sizes(images, batch)
    groups = [group for size in sizes for group in group_sizes(size, min(samples, size))]
    assert feasible._smallest(images, batch, samples) == min(groups)


def test_torch_still_says_it_in_these_words():
    with pytest.raises(ValueError, match=feasible.ONE_VALUE):
        nn.BatchNorm1d(2)(torch.ones(1, 2))
