"""The point of a run for a new domain: chosen on a few images, measured on the others, kept with its run."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import retrained
import torch
from commands import CliRunner
from safetensors.torch import load_file
from torch.nn import functional as F

import subspaces as ss
from subspaces.cli import main as app
from subspaces.core import randomness
from subspaces.evaluation.corruptions import corrupt
from subspaces.experiments import data as datasets
from subspaces.experiments.evaluating.selection import select_run
from subspaces.experiments.training import Execution, Run
from subspaces.experiments.training.batches import statistics_batches

CPU = Execution(device="cpu")
FEW: dict[str, Any] = {
    "corruption": "contrast",
    "statistics_batches": 2,
    "examples": 40,
    "execution": CPU,
    "trust": True,
}


@pytest.fixture
def run(small: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(small("curve"), tmp_path / small("curve").name))


def test_a_choice_says_what_it_gives(run: Path) -> None:
    found = select_run(run, **FEW)
    assert found.domain == "test images with contrast, severity 3"
    assert found.others == 597 - 40
    assert [row.name for row in found.rows] == ["midpoint", "chosen", "best", "worst"]
    assert found.rows[2].nll <= found.rows[0].nll <= found.rows[3].nll
    assert found.rows[1].alpha == found.alpha


def test_what_is_measured_are_all_the_others(run: Path) -> None:
    """By hand: the images that were not drawn, and a midpoint with statistics of the same two batches."""
    found = select_run(run, **FEW, seed=3)
    recipe = Run.open(run).recipe
    data = datasets.load("digits", validation=recipe.validation, seed=recipe.data_seed)
    family = ss.load(run / "family.safetensors", retrained.network(10, (1, 8, 8), 0), shape=recipe.result_shape())
    training = statistics_batches(recipe, data, CPU.resolved())
    network = ss.recalibrate(family.midpoint(), training, batches=2).eval()
    others = randomness.permutation(randomness.stream(3, "selection", 2), 597)[40:]
    mean, std = (torch.tensor(each)[:, None, None] for each in (data.mean, data.std))
    x = (corrupt(data.test.images, "contrast", 3)[others] / 255 - mean) / std
    with torch.no_grad():
        logits = network(x)
    labels = data.test.labels[others]
    assert found.rows[0].accuracy == float((logits.argmax(1) == labels).double().mean())
    assert found.rows[0].nll == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-5)


def test_one_network_has_nothing_to_choose_from(small: Callable[[str], Path]) -> None:
    with pytest.raises(ValueError, match=r"is one network, there is nothing to choose from"):
        select_run(small("first"), **FEW)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corruption": "frogs"}, r"unknown corruption 'frogs'"),
        ({"severity": 6}, r"severity=6: expected at least 1 and at most 5"),
        ({"examples": 1}, r"examples=1: expected at least 2"),
        ({"examples": 597}, r"examples=597: there are 597 images; expected fewer"),
        ({"by": "nnl"}, r"by='nnl': did you mean 'nll'"),
        ({"per": "weight"}, r"per='weight'"),
    ],
)
def test_what_does_not_fit_is_refused(run: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select_run(run, **{**FEW, **changes})


# The command


def test_the_command_prints_a_table_or_json_and_exports(run: Path, tmp_path: Path) -> None:
    options = ["--corruption", "contrast", "--examples", "40", "--statistics-batches", "2", "--device", "cpu"]
    chosen = tmp_path / "chosen.safetensors"
    said = CliRunner().invoke(app, ["select", str(run), "--trust", *options, "--out", str(chosen)])
    assert said.exit_code == 0, said.output
    for words in ("chosen by nll on 40 labelled examples", "on the 557 other images", "with hindsight", "midpoint"):
        assert words in said.output
    kept = select_run(run, **FEW)
    written = json.loads(CliRunner().invoke(app, ["select", str(run), "--trust", *options, "--json"]).output)
    assert written["selection"] == dataclasses.asdict(kept.selection)
    assert written["rows"] == [dataclasses.asdict(row) for row in kept.rows]
    assert f"| point | the point {kept.alpha:.3g} |" in Path(f"{chosen}.md").read_text()
    network = retrained.network(10, (1, 8, 8), 0)
    network.load_state_dict(load_file(chosen))
    family = ss.load(run / "family.safetensors", network, shape=Run.open(run).recipe.result_shape())
    for name, value in family.at(kept.alpha).named_parameters():
        assert torch.equal(value, network.get_parameter(name))
