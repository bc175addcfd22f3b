"""Snapshot ensembles: a member at the end of every cycle of the learning rate (Huang et al., 2017)."""

from dataclasses import dataclass

from subspaces.methods.checkpoints import Collected
from subspaces.methods.method import METHODS
from subspaces.methods.rates import cosine, cycle


def rate(epoch: int, epochs: int, peak: float, m: int) -> float:
    """Fall from the peak to nearly 0 in each of m equal parts."""
    start, end = cycle(epoch, checkpoints(epochs, m))
    return peak * cosine((epoch - start) / (end - start))


def checkpoints(epochs: int, cycles: int) -> list[int]:
    """Return after how many epochs each cycle ends."""
    if not 1 <= cycles <= epochs:
        raise ValueError(f"{cycles} cycles in {epochs} epochs: expected at least 1, and an epoch for each")
    return [epochs * (i + 1) // cycles for i in range(cycles)]


@METHODS.add
@dataclass(frozen=True)
class Snapshot(Collected):
    """An ensemble of the ends of cycles."""

    name = "snapshot"
    meaning = "an ensemble of checkpoints, a long cycle of the learning rate apart"
    schedule = "snapshot"

    def rate(self, epoch: int, epochs: int, peak: float) -> float:
        return rate(epoch, epochs, peak, self.vertices)

    def checkpoints(self, epochs: int) -> list[int]:
        return checkpoints(epochs, self.vertices)
