"""Checkpoints, the family that they span, the Gaussian of SWAG against numpy, and averages against torch's."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.testing import assert_close

import subspaces as ss
from subspaces.experiments.methods import Backward, Method
from subspaces.experiments.methods.baselines import Averaging, Ema, sharp_gradient
from subspaces.experiments.methods.checkpoints import Collecting, draw, moments, rows, spanned


def network() -> nn.Module:
    body = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 3, 1), nn.Flatten())
    return nn.Sequential(body, nn.Linear(12, 3)).to(memory_format=torch.channels_last)


def trained(seed: int) -> ss.Subspace:
    torch.manual_seed(seed)
    return ss.Subspace(network, ss.Point(), seed=seed)


def collecting(*epochs: int) -> Collecting[Method]:
    """What keeps the weights of a network after these epochs."""

    class Chosen(Method):
        def checkpoints(self, _epochs: int) -> list[int]:
            return list(epochs)

    return Collecting(Chosen(), trained(0), max(epochs), 0)


@pytest.mark.parametrize("shape", [ss.Line(), ss.Simplex(2), ss.Bezier(1), ss.Simplex(4)], ids=str)
def test_the_vertices_are_the_networks_and_the_midpoint_their_average(shape):
    families = [trained(seed) for seed in range(shape.vertices)]
    result = spanned(families[0], [rows(one) for one in families], shape, seed=5)
    assert result.shape == shape
    assert torch.equal(result.rng, ss.Subspace(network, shape, seed=5).rng)
    networks = [dict(one.midpoint().named_parameters()) for one in families]
    for index, expected in enumerate(networks):
        for name, value in result.vertex(index).items():
            assert torch.equal(value, expected[name]), name
    c = shape.coefficients(shape.midpoint()).tolist()
    for name, value in result.midpoint().named_parameters():
        average = sum(share * one[name] for share, one in zip(c, networks, strict=True))
        assert_close(value, average)


def test_checkpoints_come_back_from_their_state_in_order():
    hooks, family = collecting(2, 10), trained(0)
    for epoch, hooks.family in ((10, trained(1)), (2, family)):
        hooks.after_epoch(epoch, {})
    other = collecting(2, 10)
    other.load(hooks.kept())
    for actual, expected in zip(other.networks(), hooks.networks(), strict=True):
        assert all(torch.equal(actual[name], row) for name, row in expected.items())
    assert all(torch.equal(other.networks()[0][name], row) for name, row in rows(family).items())


# The Gaussian of SWAG


K, N = 6, 40


def drawn_from(k: int = K, n: int = N) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        {"weights": torch.randn(n, generator=generator), "others": torch.randn(4, generator=generator)}
        for _ in range(k)
    ]


def test_a_variance_is_never_negative():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(1000, generator=generator, dtype=torch.float64).repeat(3, 1)  # weights that stand still
    _, variance, _ = moments(values)
    naive = (values.square().mean(0) - values.mean(0).square()).min()
    assert naive < 0  # rounding would have made it so
    assert variance.min() == 0
    assert not any(sample["w"].isnan().any() for sample in draw([{"w": v} for v in values], 3, 0))


def test_samples_have_the_covariance_of_the_paper():
    """½ diag(σ²) + ½ D Dᵀ / (K - 1), around the mean of the checkpoints."""
    kept = drawn_from()
    drawn = draw(kept, 20_000, seed=0)
    samples = torch.stack([torch.cat([one["weights"], one["others"]]) for one in drawn]).double().numpy()
    exact = torch.stack([torch.cat([one["weights"], one["others"]]) for one in kept]).double().numpy()
    deviations = exact - exact.mean(0)
    covariance = 0.5 * np.diag(exact.var(0)) + 0.5 * deviations.T @ deviations / (K - 1)
    assert_allclose(samples.mean(0), exact.mean(0), atol=0.05)
    assert_allclose(np.cov(samples.T), covariance, atol=0.06)


def test_samples_differ_from_each_other_and_with_the_seed_only():
    kept = drawn_from()
    first, again, other = (draw(kept, 4, seed) for seed in (1, 1, 2))
    for name in ("weights", "others"):
        assert all(torch.equal(a[name], b[name]) for a, b in zip(first, again, strict=True))
        everything = [one[name] for one in [*first, *other]]
        assert len({tuple(value.tolist()) for value in everything}) == 8


def test_samples_do_not_depend_on_the_order_of_the_groups():
    """A file may give the groups of weights back in another order than training had them."""
    kept = drawn_from()
    first, second = draw(kept, 3, 0), draw([dict(reversed(one.items())) for one in kept], 3, 0)
    assert all(torch.equal(a[name], b[name]) for a, b in zip(first, second, strict=True) for name in a)


# The moving average and SAM


def test_a_moving_average_is_after_many_steps_that_of_torch():
    hooks = Averaging(Ema(ema_decay=0.9), ss.Subspace(nn.Linear(3, 2), ss.Point()), 1, 0)
    theirs = AveragedModel(hooks.family.midpoint(), multi_avg_fn=get_ema_multi_avg_fn(0.9))
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        with torch.no_grad():
            for omega in hooks.family.omega.values():
                omega.add_(torch.randn(omega.shape, generator=generator))
        theirs.update_parameters(hooks.family.midpoint())
        hooks.after_step()
    ours = dict(hooks.current_family().midpoint().named_parameters())
    assert_close(ours, dict(theirs.module.named_parameters()), rtol=1e-5, atol=1e-5)


def test_sam_leaves_what_has_no_gradient():
    used, unused = nn.Parameter(torch.tensor([0.1])), nn.Parameter(torch.tensor([0.7]))

    def backward(first: bool) -> None:
        used.grad = None
        used.square().sum().backward()
        assert unused.item() == torch.tensor(0.7).item()

    sharp_gradient(Backward(backward, [[used, unused]]), 0.05)
    assert unused.grad is None
    assert_close(used.grad, torch.tensor([2 * 0.15]))
    assert used.item() == torch.tensor(0.1).item()  # exactly, not up to rounding
