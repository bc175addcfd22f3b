"""The scale laptop: its data, its plan, and one of its figures made of a few images."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import pytest
import torch

from subspaces.experiments.data import SOURCES, load, loading, published
from subspaces.experiments.paper import FIGURES, SCALES, Scale
from subspaces.experiments.paper.reproduce import ReproductionPlan, plan, run
from subspaces.experiments.studies.setting import Setting
from subspaces.experiments.training import Run

LAPTOP = SCALES["laptop"]
EPOCHS = 30
SEEDS = (0, 1, 2)


def asked(place: Path, name: Any, scale: str = "laptop", **more: Any) -> ReproductionPlan:
    setting = {"runs": place / "runs", "out": place / "out", "data": place, "device": "cpu", "show": "quiet", **more}
    return plan(name, scale, Setting.of(**setting))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Write CIFAR-10's files with ten images each; its part has 24."""
    monkeypatch.setattr(published, "RECORDS", 10)
    monkeypatch.setattr(loading, "PART", 24)
    made.cifar10(tmp_path, records=10)
    return tmp_path


def test_the_part_of_a_data_set_is_its_first_images_and_its_whole_test_set(few: Path) -> None:
    whole, part = load("cifar10", few), load("cifar10-12k", few)
    assert torch.equal(part.train.images, whole.train.images[:24])
    assert torch.equal(part.train.labels, whole.train.labels[:24])
    assert torch.equal(part.test.images, whole.test.images)
    assert (part.name, part.classes, part.mean) == ("cifar10-12k", whole.classes, whole.mean)
    held_out = load("cifar10-12k", few, validation=4, label_noise=0.5)
    assert (len(held_out.train), len(held_out.validation or ())) == (20, 4)


def test_a_part_is_fetched_as_its_whole_is() -> None:
    for name in ("cifar10", "mnist"):
        assert SOURCES[f"{name}-12k"].files == SOURCES[name].files
        assert SOURCES[f"{name}-12k"].find is SOURCES[name].find


def test_the_plan_shares_runs_between_figures(tmp_path: Path) -> None:
    whole = asked(tmp_path, "all")
    keys = [one.key for each in whole.every for one in each.recipes]
    unique = {one.key: one for each in whole.every for one in each.recipes}
    assert len(unique) < len(keys) / 1.5
    assert {one.seed % 1000 for one in unique.values()} == set(SEEDS)
    assert {one.dataset for one in unique.values()} == {"cifar10-12k", "mnist-12k"}
    for one in unique.values():  # 10,000 images for training, without augmentation
        assert (one.validation, one.pad, one.flip) == (2000, 0, False)
        assert one.epochs in (15, EPOCHS)
        assert one.label_noise in LAPTOP.levels


def test_label_noise_is_where_the_paper_has_it(tmp_path: Path) -> None:
    noisy = {each.figure.name for each in asked(tmp_path, "all").every if any(one.label_noise for one in each.recipes)}
    assert noisy == {"label-noise", "large-noise", "integral"}


def test_integral_is_trained_with_two_networks(tmp_path: Path) -> None:
    setups = [each.setup for each in asked(tmp_path, "integral").every]
    assert [each.standard.network for each in setups] == ["lenet", "mlp"]
    assert len({each.name for each in setups}) == 2


def test_a_figure_is_counted_by_hand(tmp_path: Path) -> None:
    """Figure 8: standard training, four lists of settings, two simplexes, one with smoothing, SWA twice, stopping."""
    (noise,) = asked(tmp_path, "label-noise").every
    tried = sum(map(len, LAPTOP.lists.values()))
    assert len(noise.recipes) == (1 + tried + 2 + 1 + 2 + 1) * len(LAPTOP.levels) * len(SEEDS)
    assert noise.size == f"{len(noise.recipes)} × {EPOCHS}"
    (large,) = asked(tmp_path, "large-noise").every
    shared = {one.key for one in noise.recipes} & {one.key for one in large.recipes}
    assert len(shared) == 2 * len(LAPTOP.levels) * len(SEEDS)  # all but the line


def test_the_scale_computes_in_bfloat16_unless_told_otherwise(tmp_path: Path) -> None:
    assert asked(tmp_path, "along").setting.execution.precision == "bfloat16"
    assert asked(tmp_path, "along", precision="float32").setting.execution.precision == "float32"


@pytest.fixture
def tiny() -> Iterator[Scale]:
    """The scale laptop with one epoch of a few images."""
    standard = {"any": {**LAPTOP.standard["any"], "epochs": 1, "validation": 4, "batch": 10}}
    yield SCALES.add(replace(LAPTOP, name="tiny", standard=standard, validation=4))
    SCALES.remove("tiny")


def test_a_figure_end_to_end_on_a_few_images(few: Path, tiny: Scale) -> None:
    whole = asked(few, "large-noise", scale=tiny.name, seeds=[0, 1])
    (figure,) = run(whole).figures
    summary = json.loads((few / "out" / "large-noise" / "cifar10-12k" / "reproduction.json").read_text())
    claims = list(FIGURES["large-noise"].claims_on(figure.plan.setup))
    assert [each["claim"] for each in summary["claims"]] == [each.sentence for each in claims]
    for each in summary["claims"]:
        assert each["seeds"] == [0, 1]
        assert all(math.isfinite(value) for value in (*each["above"]["values"], *each["below"]["values"]))
    lines = [one for one in whole.recipes if (one.method, one.label_noise) == ("line", 0.4)]
    found = [Run.under(few / "runs", one).result["test_accuracy"] for one in lines]
    assert summary["claims"][0]["above"]["values"] == found  # both with statistics of all training images
