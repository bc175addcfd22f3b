"""What plans cost: network-steps, networks that are measured, shared runs once, and the time of real steps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from subspaces.experiments.data import Size
from subspaces.experiments.studies.catalogue import SCALES, Plan
from subspaces.experiments.studies.catalogue.costs import (
    A_PICTURE,
    A_RUN,
    FORWARD,
    TESTED,
    Estimates,
    obstacle,
    time_step,
)
from subspaces.experiments.studies.reproduce import plan
from subspaces.experiments.studies.setting import Setting
from subspaces.experiments.training import RECIPES, Execution

CPU = Execution(device="cpu")
BATCHES = 10  # of an epoch of digits: 1,200 training images in batches of 128
QUIET: dict[str, Any] = {"show": "quiet", "tensorboard": False, "device": "cpu"}
SECONDS = 0.5


@pytest.fixture
def estimates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Estimates:
    """Estimates on a device whose steps take half a second."""
    monkeypatch.setattr("subspaces.experiments.studies.catalogue.costs.time_step", lambda *_: SECONDS)
    return Estimates(tmp_path, CPU)


def planned(place: Path, name: Any, scale: str = "smoke", **more: Any) -> list[Plan]:
    """The plans of exhibits, also of those that are not possible here."""
    found = plan(name, scale, Setting.of(**{"seeds": [0, 1], "runs": place / "runs", "data": place, **QUIET, **more}))
    return [*found.plans, *(each.plan for each in found.obstacles)]


def test_a_run_of_several_exhibits_counts_once(estimates: Estimates, tmp_path: Path) -> None:
    dynamics, start = planned(tmp_path, ["dynamics", "point-init"])
    alone = [estimates.cost([one]) for one in (dynamics, start)]
    both = estimates.cost([dynamics, start])
    assert [(one.runs, one.steps) for one in (*alone, both)] == [(4, 480.0), (8, 960.0), (8, 960.0)]
    assert both.passes == sum(one.passes for one in alone)


def test_time_is_that_of_steps_and_of_networks_that_are_measured(estimates: Estimates, tmp_path: Path) -> None:
    (one,) = planned(tmp_path, "dynamics", seeds=[0])
    cost = estimates.cost([one])
    assert cost.passes == pytest.approx(2 * 5 * 1200 / 128 * (1 + TESTED))
    expected = SECONDS * (cost.steps + FORWARD * cost.passes) + 2 * A_RUN + A_PICTURE
    assert cost.seconds == pytest.approx(expected)


def test_a_step_is_timed_for_real_and_leaves_nothing() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    recipe = replace(RECIPES["digits-line"], method="standard")
    alone = time_step(recipe, Size(1200, (1, 8, 8), 10), replace(CPU.resolved(), stack=1))
    together = time_step(recipe, Size(1200, (1, 8, 8), 10), CPU.resolved())
    assert 1e-5 < together < 1
    assert 1e-5 < alone < 1
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_missing_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert obstacle(RECIPES["digits-standard"], tmp_path) is None
    assert "subspaces data get cifar10 --data" in str(obstacle(RECIPES["cifar10-line"], tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    large = SCALES["paper"].bench("large")
    told = str(obstacle(large.base, tmp_path))
    assert "pip install 'subspaces[torchvision]'" in told
    assert "subspaces data get imagenet" in told
    (one, *_) = planned(tmp_path, "epochs", "paper")
    assert Estimates(tmp_path, CPU).cost([one]).seconds is None
