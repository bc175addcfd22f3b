"""The learning rates over the epochs that a recipe may choose; some methods have one of their own instead."""

from collections.abc import Callable
from dataclasses import dataclass

from subspaces.methods import rates
from subspaces.text import Catalogue


@dataclass(frozen=True)
class Schedule:
    """A learning rate as a function of (epoch, epochs, peak)."""

    name: str
    rate: Callable[[int, int, float], float]


SCHEDULES = Catalogue(
    "schedule", [Schedule("warmup-cosine", rates.warmup_cosine), Schedule("constant", rates.constant)]
)
