"""Stochastic weight averaging: checkpoints late in training, whose midpoint is the network (Izmailov et al., 2018)."""

from dataclasses import dataclass
from typing import ClassVar

from subspaces.methods.checkpoints import Collected
from subspaces.methods.method import METHODS
from subspaces.methods.rates import cosine, cycle, short, warmup_cosine
from subspaces.shapes import Line, Shape

START = 0.75
RATE = 0.5  # of the peak


@dataclass(frozen=True)
class Averaged(Collected):
    """One network, the average of its checkpoints; they also answer together."""

    answers: ClassVar[tuple[str, ...]] = ("midpoint", "vertices")
    members = "checkpoints"

    def result_shape(self) -> Shape:
        shape = super().result_shape()
        return Line() if shape.vertices == 2 else shape

    def checkpoints(self, epochs: int) -> list[int]:
        """Return when the m checkpoints are taken: the first at three quarters, the last at the end."""
        start, gaps = round(START * epochs), self.vertices - 1
        if epochs - start < gaps:
            raise ValueError(
                f"{self.vertices} checkpoints in {epochs} epochs, of which the last {epochs - start} are theirs: "
                "expected an epoch between any two of them"
            )
        return [start + (epochs - start) * i // gaps for i in range(self.vertices)]


@METHODS.add
@dataclass(frozen=True)
class SwaCyclic(Averaged):
    """SWA with a cyclic learning rate."""

    name = "swa-cyclic"
    meaning = "the average of checkpoints, after cycles of the learning rate"
    schedule = "swa-cyclic"

    def rate(self, epoch: int, epochs: int, peak: float) -> float:
        """Cosine to nearly 0 at three quarters, then m - 1 of them from half the peak."""
        ends = self.checkpoints(epochs)
        if epoch < ends[0]:
            return warmup_cosine(epoch, ends[0], peak, short(ends[0]))
        start, end = cycle(epoch, ends)
        return RATE * peak * cosine((epoch - start) / (end - start))


@METHODS.add
@dataclass(frozen=True)
class SwaConstant(Averaged):
    """SWA with a constant learning rate."""

    name = "swa-constant"
    meaning = "the average of checkpoints, at a high learning rate"
    schedule = "swa-constant"

    def rate(self, epoch: int, epochs: int, peak: float) -> float:
        """Rise to the peak, stay for half of the training, move in a line to half the peak at three quarters, stay."""
        start, turn, first = 0.5 * epochs, START * epochs, round(START * epochs)
        warmup = short(first)
        if epoch < warmup:
            return peak * (epoch + 1) / warmup
        if epoch >= first:
            return RATE * peak
        share = min(1.0, max(0.0, (epoch - start) / (turn - start)))
        return peak * (1 - share * (1 - RATE))
