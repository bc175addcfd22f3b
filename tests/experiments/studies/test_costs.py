"""What plans cost: network-steps, networks that are measured, shared runs once, and the time of real steps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from subspaces.experiments.studies.catalogue.program import plan

import subspaces as ss
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


def test_the_steps_of_a_run(estimates: Estimates) -> None:
    line, integral, sam = (replace(RECIPES[f"digits-{name}"], epochs=7) for name in ("line", "integral", "sam"))
    assert estimates.size(line).training == 1200
    assert dict(estimates.training_steps([line, integral, sam])) == {
        line: 7 * BATCHES,
        integral: 3 * 7 * BATCHES,
        sam: 2 * 7 * BATCHES,
    }
    held_out = replace(line, validation=1000, batch=150)
    assert estimates.training_steps([held_out]) == [(held_out, 7 * 2)]  # batches of 150 and 50


def test_what_branches_share_is_trained_once(estimates: Estimates) -> None:
    base = replace(RECIPES["digits-standard"], epochs=10)
    branches = [replace(base, trunk=k, branch=b) for k in (0, 4, 6) for b in (1, 2)]
    total = sum(steps for _, steps in estimates.training_steps(branches))
    assert total == BATCHES * (2 * 10 + 2 * 6 + 2 * 4 + 6)


def test_the_paper_s_runs_are_counted_without_its_data(estimates: Estimates, tmp_path: Path) -> None:
    by_bench = {one.bench.name: one for one in planned(tmp_path, "along", "paper", seeds=[0, 1, 2])}
    small = estimates.cost([by_bench["cifar10"]])
    assert (small.runs, small.left, small.steps) == (15, 15, 15 * 160 * 391)
    points = 3 * (1 + 4 * 21)  # of standard training, and of two lines and two curves
    assert small.passes == pytest.approx(points * 50_000 / 128 * (1 + TESTED))
    medium = estimates.cost([by_bench["tiny-imagenet-resnet18"]])
    assert medium.steps == 15 * 160 * 782
    (wide,) = (one for one in planned(tmp_path, "large-noise", "paper", seeds=[0]))
    assert estimates.cost([wide]).steps == 4 * 3 * 100 * -(-(1_281_167 - 5000) // 256)


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


def test_corrupted_images_and_cells_of_planes_are_counted(estimates: Estimates, tmp_path: Path) -> None:
    (corrupted,) = planned(tmp_path, "corrupted-midpoint", seeds=[0])
    networks, kinds = 1 + 5 + 5, len(SCALES["smoke"].corruptions)
    assert estimates.passes(corrupted) == pytest.approx(networks * 1200 / 128 * (1 + TESTED * (1 + kinds)))
    (planes,) = planned(tmp_path, "planes", seeds=[0])
    assert planes.exhibit.networks(planes) == 3 * SCALES["smoke"].cells ** 2
    (branches,) = planned(tmp_path, "instability", seeds=[0])
    assert branches.exhibit.networks(branches) == 2 * 2 * (2 + 3 * SCALES["smoke"].draws)


def test_what_is_done_costs_nothing_more(estimates: Estimates, tmp_path: Path) -> None:
    (one,) = planned(tmp_path, "dynamics", seeds=[0])
    first, second = one.recipes
    ss.train(first, out=tmp_path / "runs", **QUIET)
    cost = estimates.cost([one])
    assert (cost.runs, cost.left, cost.steps) == (2, 1, 120)
    runs = ss.train([first, second], out=tmp_path / "runs", **QUIET)
    assert estimates.cost([one]) == cost  # runs are looked at once
    assert Estimates(tmp_path, CPU).cost([one]).passes == cost.passes > 0
    ss.evaluate(runs, grid=[0.5], progress=False, device="cpu")
    cost = Estimates(tmp_path, CPU).cost([one])
    assert (cost.left, cost.steps, cost.passes, cost.seconds) == (0, 0, 0, A_PICTURE)


def test_each_network_is_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = []
    monkeypatch.setattr(
        "subspaces.experiments.studies.catalogue.costs.time_step",
        lambda recipe, size, _: timed.append(recipe.network) or 1.0,
    )
    estimates = Estimates(tmp_path, CPU)
    estimates.cost(planned(tmp_path, ["along", "betas"], "paper"))
    estimates.cost(planned(tmp_path, "planes", "paper"))
    assert timed == ["cresnet20", "resnet18", "resnet50"]


def test_a_step_is_timed_for_real_and_leaves_nothing() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    recipe = replace(RECIPES["digits-line"], method="standard")
    alone = time_step(recipe, Size(1200, (1, 8, 8), 10), replace(CPU.resolved(), stack=1))
    together = time_step(recipe, Size(1200, (1, 8, 8), 10), CPU.resolved())
    assert 1e-5 < together < 1
    assert 1e-5 < alone < 1
    assert torch.equal(torch.get_rng_state(), before)


def test_a_large_batch_is_timed_with_few_of_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of which is taken to last as long as in the whole."""
    seen = []

    def clocked(engines: Any, steps: int) -> float:
        seen.append((engines[0].recipe.batch, steps, len(engines)))
        return 2.0

    monkeypatch.setattr("subspaces.experiments.studies.catalogue.costs._clocked", clocked)
    large = replace(RECIPES["mnist-standard"], batch=1024)
    assert time_step(large, Size(60_000, (1, 28, 28), 10), CPU.resolved()) == 2.0 * 1024 / 4
    assert time_step(replace(large, batch=128), Size(60_000, (1, 28, 28), 10), CPU.resolved()) == 2.0
    assert seen == [(4, 1, 1), (128, 3, 1)]


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
