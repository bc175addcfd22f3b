"""Learning rates as functions of (epoch, epochs, peak), with epoch from 0 to epochs - 1; none knows a fixed number."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from subspaces.text import Catalogue


def cosine(position: float) -> float:
    """Return half a cosine wave: 1 at position 0, 0 at position 1."""
    return 0.5 * (1 + math.cos(math.pi * position))


def warmup_cosine(epoch: int, epochs: int, peak: float, warmup: int = 5) -> float:
    """Rise to the peak in equal steps over `warmup` epochs, then fall along half a cosine."""
    if epoch < warmup:
        return peak * (epoch + 1) / warmup
    return peak * cosine((epoch - warmup) / max(1, epochs - warmup))


def constant(epoch: int, epochs: int, peak: float) -> float:
    """Stay at the peak."""
    return peak


def short(epochs: int, warmup: int = 5) -> int:
    """Return a warm-up of at most half of so many epochs, so that the rate has come down at their end."""
    return min(warmup, epochs // 2)


def cycle(epoch: int, ends: list[int]) -> tuple[int, int]:
    """Return start and end of the cycle that the epoch lies in."""
    start = max((end for end in ends if end <= epoch), default=0)
    return start, min(end for end in ends if end > epoch)


@dataclass(frozen=True)
class Schedule:
    """A learning rate that a recipe may choose by its name; some methods have one of their own instead."""

    name: str
    rate: Callable[[int, int, float], float]


SCHEDULES = Catalogue("schedule", [Schedule("warmup-cosine", warmup_cosine), Schedule("constant", constant)])
