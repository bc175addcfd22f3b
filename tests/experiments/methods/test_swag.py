"""The Gaussian of SWAG against numpy, and its samples."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from subspaces.experiments.methods.checkpoints import draw, moments

K, N = 6, 40


def checkpoints(k: int = K, n: int = N) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        {"weights": torch.randn(n, generator=generator), "others": torch.randn(4, generator=generator)}
        for _ in range(k)
    ]


def test_moments_are_those_of_numpy():
    values = torch.stack([one["weights"] for one in checkpoints()])
    mean, variance, deviations = moments(values)
    exact = values.numpy().astype(np.float64)
    assert_allclose(mean, exact.mean(0))
    assert_allclose(variance, exact.var(0), rtol=1e-9, atol=1e-12)
    assert_allclose(deviations, (exact - exact.mean(0)).T)


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
    kept = checkpoints()
    drawn = draw(kept, 20_000, seed=0)
    samples = torch.stack([torch.cat([one["weights"], one["others"]]) for one in drawn]).double().numpy()
    exact = torch.stack([torch.cat([one["weights"], one["others"]]) for one in kept]).double().numpy()
    deviations = exact - exact.mean(0)
    covariance = 0.5 * np.diag(exact.var(0)) + 0.5 * deviations.T @ deviations / (K - 1)
    assert_allclose(samples.mean(0), exact.mean(0), atol=0.05)
    assert_allclose(np.cov(samples.T), covariance, atol=0.06)


def test_samples_differ_from_each_other_and_with_the_seed_only():
    kept = checkpoints()
    first, again, other = (draw(kept, 4, seed) for seed in (1, 1, 2))
    for name in ("weights", "others"):
        assert all(torch.equal(a[name], b[name]) for a, b in zip(first, again, strict=True))
        everything = [one[name] for one in [*first, *other]]
        assert len({tuple(value.tolist()) for value in everything}) == 8


def test_samples_do_not_depend_on_the_order_of_the_groups():
    """A file may give the groups of weights back in another order than training had them."""
    kept = checkpoints()
    first, second = draw(kept, 3, 0), draw([dict(reversed(one.items())) for one in kept], 3, 0)
    assert all(torch.equal(a[name], b[name]) for a, b in zip(first, second, strict=True) for name in a)


def test_samples_do_not_touch_the_global_random_numbers():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    draw(checkpoints(), 2, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_one_checkpoint_is_too_few():
    with pytest.raises(ValueError, match="1 checkpoints: expected at least 2"):
        draw(checkpoints(1), 2, 0)
