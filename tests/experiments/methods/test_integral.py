"""The outputs f of Integral by hand, their closed form g(1), and one run against a loop written by hand."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.testing import assert_close

import subspaces as ss
from subspaces.experiments import data
from subspaces.experiments.methods.integral import outputs, steps
from subspaces.experiments.training import RECIPES, Execution
from subspaces.experiments.training.batches import statistics_batches, training_batches
from subspaces.experiments.training.engine import build_family
from subspaces.experiments.training.recipe import Recipe

CPU = Execution(device="cpu").resolved()
DIGITS = replace(RECIPES["digits-integral"], epochs=2, batch=400, label_noise=0.0)


def smooth(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def line(dtype: torch.dtype = torch.float64, layerwise: bool = False) -> tuple[ss.Subspace, nn.Module, nn.Module]:
    """A line and its two ends."""
    ends = smooth(0).to(dtype), smooth(1).to(dtype)
    return ss.Subspace.from_modules(ends, ss.Line(), layerwise, seed=3), *ends


def inputs(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(5, 4, dtype=dtype, generator=torch.Generator().manual_seed(2))


def by_hand(ends: tuple[nn.Module, nn.Module], x: Tensor, alpha: float) -> Tensor:
    """g(x, (1 - alpha) omega_1 + alpha omega_2) without a family."""
    first, second = (dict(end.named_parameters()) for end in ends)
    weights = {name: (1 - alpha) * first[name] + alpha * second[name] for name in first}
    return functional_call(ends[0], weights, (x,))


@pytest.mark.parametrize(("alpha", "epsilon"), [(0.0, 0.1), (0.3, 0.1), (1.0, 0.1), (0.95, 0.5)])
def test_outputs_are_the_formula_of_the_paper(alpha: float, epsilon: float):
    """Also where alpha + epsilon is off the end of the line."""
    family, *ends = line()
    x = inputs()
    g = [by_hand(tuple(ends), x, point) for point in (0.0, alpha, alpha + epsilon)]
    assert_close(outputs(family, x, epsilon, alpha), g[0] + (g[2] - g[1]) / epsilon)


def test_differences_are_taken_in_full_precision_under_autocast():
    """Outputs of 8 digits rounded to bfloat16's 2 and divided by epsilon would be noise."""
    family = line(torch.float32)[0]
    x = inputs(torch.float32).bfloat16()  # as an engine with autocast has its images
    family.cast_weights = True
    with torch.autocast("cpu", torch.bfloat16):
        found = outputs(family, x, 0.1, 0.4)
    assert found.dtype == torch.float32
    assert_close(found, outputs(family, x.float(), 0.1, 0.4), rtol=0, atol=0)


def test_alpha_is_drawn_once_for_the_network_from_all_of_the_interval():
    family = line(layerwise=True)[0].train()
    x = inputs()
    twin = copy.deepcopy(family)
    drawn = [twin.sample("network").item() for _ in range(200)]
    for alpha in drawn[:5]:
        assert_close(outputs(family, x, 0.1), outputs(family, x, 0.1, alpha))
    assert min(drawn) < 0.02
    assert max(drawn) > 0.98
    assert family.rng[1] == 5


@pytest.mark.parametrize("epsilon", [1.0, 0.5, 0.1, 1 / 3])
@torch.no_grad()
def test_the_mean_over_steps_is_the_end_of_the_line(epsilon: float):
    """Whatever the network, within what rounding leaves of the telescope."""
    family, _, end = line()
    x = inputs()
    found = torch.stack([outputs(family, x, epsilon, alpha) for alpha in steps(epsilon)]).mean(0)
    assert_close(found, end(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 0.025])
@torch.no_grad()
def test_the_integral_differs_from_the_end_as_the_finite_difference_does(epsilon: float):
    """∫₀¹ f by Gauss's nodes, and g(1) + ε/2 (g'(1) − g'(0)) + O(ε²)."""
    family, *ends = line()
    x = inputs()
    nodes, weights = np.polynomial.legendre.leggauss(12)
    places = zip((nodes + 1) / 2, weights / 2, strict=True)
    found = sum(weight * outputs(family, x, epsilon, float(alpha)) for alpha, weight in places)

    def slope(alpha: float, h: float = 1e-5) -> Tensor:
        return (by_hand(tuple(ends), x, alpha + h) - by_hand(tuple(ends), x, alpha - h)) / (2 * h)

    first_order = epsilon / 2 * (slope(1.0) - slope(0.0))
    assert_close(found - ends[1](x), first_order, rtol=0, atol=epsilon**2)
    assert float(first_order.abs().max()) > 2 * epsilon**2


def test_what_does_not_fit_is_refused():
    family = ss.Subspace(smooth(), ss.Bezier())
    with pytest.raises(ValueError, match=r"Bezier\(bends=1\): expected a Line\(\)"):
        outputs(family, inputs(torch.float32), 0.1)
    for epsilon in (0.3, 2.0):
        with pytest.raises(ValueError, match=f"epsilon={epsilon}: expected 1 divided by a whole number"):
            steps(epsilon)
    for changes in ({"layerwise": True}, {"samples": 2}, {"samples": 2, "feature_similarity": 1.0}):
        with pytest.raises(ValueError, match="integral makes no use of it; it is for line, curve and simplex"):
            replace(DIGITS, **changes)


def loop_by_hand(recipe: Recipe, dataset: data.Dataset) -> ss.Subspace:
    """Train f with torch's own SGD on the vertices of the same start, and the alphas of the same draws."""
    family = build_family(recipe, dataset, CPU).train()
    batches = training_batches(recipe, dataset, CPU)
    optimizer = torch.optim.SGD(family.parameters(), lr=0.0, momentum=0.9, weight_decay=1e-4)
    for epoch in range(recipe.epochs):
        optimizer.param_groups[0]["lr"] = recipe.rate(epoch)
        for x, y in batches:
            alpha = family.sample("network")
            start, here = family(x, alpha=0.0), family(x, alpha=alpha)
            there = family(x, alpha=alpha + recipe.epsilon, outside=True)
            loss = F.cross_entropy(start + (there - here) / recipe.epsilon, y) + family.penalty(recipe.beta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return family


def test_a_run_is_a_loop_by_hand_and_keeps_the_end_and_the_line(tmp_path: Path):
    dataset = data.load("digits")
    expected = loop_by_hand(DIGITS, dataset)
    (run,) = ss.train(DIGITS, out=tmp_path, show="quiet", device="cpu", evaluate_every=1)
    trained = ss.load(run.trained_file, expected.midpoint())
    family = ss.load(run.family_file, expected.midpoint())
    assert trained.shape == ss.Line()
    assert family.shape == ss.Point()
    for name, omega in trained.omega.items():
        assert_close(omega, expected.omega[name], rtol=0, atol=0)
    for name, value in family.vertex(0).items():
        assert_close(value, expected.vertex(1)[name], rtol=0, atol=0)
    network = ss.recalibrate(expected.at(1.0), statistics_batches(DIGITS, dataset, CPU)).eval()
    images = (dataset.test.images.float() / 255 - dataset.mean[0]) / dataset.std[0]
    right = (network(images).argmax(1) == dataset.test.labels).double().mean().item()
    assert run.result["test_accuracy"] == pytest.approx(right, abs=2e-3)
    assert DIGITS.training_cost == 3
