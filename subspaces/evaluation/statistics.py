"""Means over seeds, differences that are paired by the seed, and both as text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from subspaces.errors import ArgumentError

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
    """Return mean and standard deviation."""
    if not len(values):
        raise ArgumentError("the mean of no values: expected at least one")
    given = [float(value) for value in values]
    return Spread(given, float(np.mean(given)), float(deviation(given)) if len(given) > 1 else None)


def deviation(values: ArrayLike) -> NDArray[np.float64]:
    """Return the standard deviation over the first axis, s² = 1/(n-1) sum_i (x_i - mean)²; 0 of one value."""
    given = np.asarray(values, float)
    return np.asarray(given.std(0, ddof=min(1, len(given) - 1)))


def paired(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the mean of d_i = first_i - second_i with the interval mean ± t s/√n, t of Student's with n - 1 degrees.

    The pairs share what their seed decides: the order of the images and the draws of the augmentation. What both have
    in common drops out of the difference, so that its interval may be far narrower than the two spreads suggest.
    """
    if len(first) != len(second):
        raise ArgumentError(f"{len(first)} and {len(second)} values: expected pairs")
    found = spread([a - b for a, b in zip(first, second, strict=True)])
    if found.std is None:
        return Difference(found.values, found.mean, None, None)
    half = errors(len(first)) * found.std / len(first) ** 0.5
    return Difference(found.values, found.mean, found.mean - half, found.mean + half)


def errors(n: int) -> float:
    """Return how many standard errors of a mean of n > 1 values its interval reaches to each side."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2))


def shown(values: Spread, scale: float = 1.0, digits: int = 2) -> str:
    """Return mean ± standard deviation, multiplied by `scale` (100 for percent)."""
    around = "" if values.std is None else f" ± {scale * values.std:.{digits}f}"
    return f"{scale * values.mean:.{digits}f}{around}"


def shown_difference(difference: Difference, scale: float = 1.0, digits: int = 2) -> str:
    """Return a difference with its sign and its interval."""
    text = signed(scale * difference.mean, digits)
    if difference.low is None or difference.high is None:
        return text
    return f"{text} [{signed(scale * difference.low, digits)}, {signed(scale * difference.high, digits)}]"


def signed(value: float, digits: int) -> str:
    """Return a number with its sign; zero has none."""
    text = f"{abs(value):.{digits}f}"
    return text if float(text) == 0 else f"{'+' if value > 0 else '−'}{text}"
