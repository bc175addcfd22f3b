"""The rule on simulated losses whose truth is known: safe with few examples, and an honest estimate of the gain."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from subspaces.core import search

GRID = torch.linspace(0, 1, 21, dtype=torch.float64)
MIDDLE, LEVEL, SETS = 10, 0.05, 120


@pytest.fixture(scope="module", autouse=True)
def quicker() -> Iterator[None]:
    """Turn signs less often: the quantile is a little noisier, and everything four times as quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "TURNS", 199)
        yield


class Case(NamedTuple):
    """Examples, where the best point is, and how much worse others are: [points] mean losses, and draws of them."""

    n: int
    best: float
    bend: float
    skewed: bool = False

    @property
    def truth(self) -> Tensor:
        return self.bend * (GRID - self.best) ** 2

    def draw(self, seed: int, n: int | None = None) -> Tensor:
        """Return losses [points, n] that differ more from the midpoint's the farther a point is from it."""
        generator = torch.Generator().manual_seed(seed)
        plain, tilt, curve = torch.randn(3, n or self.n, generator=generator, dtype=torch.float64)
        tilt = tilt.exp() - math.exp(0.5) if self.skewed else tilt
        apart = (GRID - 0.5)[:, None]
        return plain.exp() + self.truth[:, None] + apart * tilt + 2 * apart.square() * curve


def choice(losses: Tensor) -> int:
    return search.safest(losses, MIDDLE, LEVEL, 0)


def true_gains(case: Case, first: int = 0, n: int | None = None) -> Tensor:
    """Return what the choices of many data sets really gain."""
    chosen = torch.tensor([choice(case.draw(first + seed, n)) for seed in range(SETS)])
    return case.truth[MIDDLE] - case.truth[chosen]


def naive_gains(case: Case) -> Tensor:
    """Return what the best point of the grid seems to gain."""
    means = torch.stack([case.draw(seed).mean(1) for seed in range(SETS)])
    return means[:, MIDDLE] - means.amin(1)


def noise(sample: Tensor) -> float:
    return float(sample.std() / math.sqrt(len(sample)))


@pytest.mark.parametrize("case", [Case(20, 0.5, 1), Case(20, 0.5, 1, True), Case(20, 0.55, 1)])
def test_with_twenty_examples_nothing_is_lost(case: Case) -> None:
    found = true_gains(case)
    assert float((found != 0).double().mean()) <= LEVEL + 3 * math.sqrt(LEVEL / SETS)
    assert float(found.mean()) >= -0.002  # the loss itself has a standard error of about 0.5 on twenty examples
    assert float(naive_gains(case).mean()) > 0.01  # what the best of the grid seems to gain where there is nothing


def test_where_all_points_are_as_good_the_midpoint_stays() -> None:
    moved = [choice(Case(20, 0.5, 0).draw(seed)) != MIDDLE for seed in range(2 * SETS)]
    assert sum(moved) / len(moved) <= LEVEL + 3 * math.sqrt(LEVEL / len(moved))


@pytest.mark.parametrize("skewed", [False, True])
def test_a_large_gain_is_found(skewed: bool) -> None:
    found = true_gains(Case(20, 0.2, 4, skewed))
    assert float(found.min()) > 0
    assert float(found.mean()) > 0.75 * 0.36


@pytest.mark.parametrize("case", [Case(20, 0.2, 4), Case(20, 0.9, 1)])
def test_the_estimate_is_unbiased_and_the_best_of_the_grid_is_not(case: Case) -> None:
    def estimated(seed: int) -> tuple[float, float]:
        losses = case.draw(seed)
        return search.cross_validated(lambda some: losses[MIDDLE] - losses[choice(losses[:, some])], case.n, 5, seed)

    gains, errors = torch.tensor([estimated(seed) for seed in range(SETS)], dtype=torch.float64).T
    others = case.n - case.n // 5  # the procedure that is measured chooses on the other folds
    truth = true_gains(case, 10_000, others)
    assert abs(float(gains.mean() - truth.mean())) < 3 * math.hypot(noise(gains), noise(truth))
    naive = naive_gains(case)
    assert float(naive.mean() - truth.mean()) > 3 * noise(naive)
    covered = (gains - true_gains(case)).abs() <= 2 * errors
    assert float(covered.double().mean()) > 0.8
