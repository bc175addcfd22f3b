"""Means over seeds, differences that are paired by the seed, and both as text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd

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
    found = spread([a - b for a, b in zip(first, second, strict=True)])
    if found.std is None:
        return Difference(found.values, found.mean, None, None)
    half = errors(len(first)) * found.std / len(first) ** 0.5
    return Difference(found.values, found.mean, found.mean - half, found.mean + half)


def errors(n: int) -> float:
    """Return how many standard errors of a mean of n > 1 values its interval reaches to each side."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(n - 1, 0.5 + CONFIDENCE / 2))


@dataclass(frozen=True)
class Compared:
    """A metric of two answers over the seeds that both have."""

    seeds: list[int]
    difference: Difference


def compare(first: "pd.DataFrame", second: "pd.DataFrame", metric: str) -> Compared | None:
    """Return how two answers compare, paired by the seed; None where they have no seed in common.

    Each is the rows of one answer, as `comparing.answers` returns them. An ensemble of runs is compared with the
    mean over the seeds of its members.
    """
    sides = [dict(zip(each["seeds"], each[metric], strict=True)) for each in (first, second)]
    units = max(sides, key=lambda by: max(map(len, by), default=0))
    pairs = {
        unit: (one, other)
        for unit in units
        if (one := _at(sides[0], unit)) is not None and (other := _at(sides[1], unit)) is not None
    }
    if not pairs:
        return None
    ours, theirs = (list(side) for side in zip(*pairs.values(), strict=True))
    return Compared(sorted({seed for unit in pairs for seed in unit}), paired(ours, theirs))


def _at(side: dict[tuple[int, ...], float], unit: tuple[int, ...]) -> float | None:
    """Return the value with these seeds, or its mean over single ones; None where one is missing."""
    found = [side.get(unit)] if unit in side else [side.get((seed,)) for seed in unit]
    values = [value for value in found if value is not None]
    return sum(values) / len(values) if len(values) == len(found) else None


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
