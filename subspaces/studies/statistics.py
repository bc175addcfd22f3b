"""Means over seeds, and differences that are paired by the seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Spread:
    """The mean of a number over seeds, and the standard deviation (n - 1 in the denominator); None for one seed."""

    values: list[float]
    mean: float
    std: float | None


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, and an interval that covers the true mean; None for one pair."""

    values: list[float]
    mean: float
    low: float | None
    high: float | None


def spread(values: Sequence[float]) -> Spread:
    """Return mean and standard deviation, s² = 1/(n-1) sum_i (x_i - mean)²."""
    if not values:
        raise ValueError("the mean of no values: expected at least one")
    given = [float(value) for value in values]
    return Spread(given, float(np.mean(given)), float(np.std(given, ddof=1)) if len(given) > 1 else None)


def paired(first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE) -> Difference:
    """Return the mean of d_i = first_i - second_i with the interval mean ± t s/√n, t of Student's with n - 1 degrees.

    The pairs share what their seed decides: the order of the images and the draws of the augmentation. What both have
    in common drops out of the difference, so that its interval may be far narrower than the two spreads suggest.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} values: expected pairs")
    found = spread([a - b for a, b in zip(first, second, strict=True)])
    if found.std is None:
        return Difference(found.values, found.mean, None, None)
    half = errors(len(first), confidence) * found.std / len(first) ** 0.5
    return Difference(found.values, found.mean, found.mean - half, found.mean + half)


def errors(n: int, confidence: float = CONFIDENCE) -> float:
    """Return how many standard errors of a mean of n values its interval reaches to each side."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    if n < 2 or not 0 < confidence < 1:
        raise ValueError(f"n={n}, confidence={confidence}: expected 2 or more values and a fraction")
    return float(stdtrit(n - 1, 0.5 + confidence / 2))
