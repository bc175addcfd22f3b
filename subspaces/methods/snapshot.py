"""Snapshot ensembles: a member at the end of every cycle of the learning rate (Huang et al., 2017)."""

from dataclasses import dataclass

from subspaces.methods.checkpoints import Collected
from subspaces.methods.method import METHODS
from subspaces.methods.rates import cosine, cycle


@METHODS.add
@dataclass(frozen=True)
class Snapshot(Collected):
    """An ensemble of the ends of cycles."""

    name = "snapshot"
    meaning = "an ensemble of checkpoints, a long cycle of the learning rate apart"
    schedule = "snapshot"

    def rate(self, epoch: int, epochs: int, peak: float) -> float:
        """Fall from the peak to nearly 0 in each of m equal parts."""
        start, end = cycle(epoch, self.checkpoints(epochs))
        return peak * cosine((epoch - start) / (end - start))

    def checkpoints(self, epochs: int) -> list[int]:
        if self.vertices > epochs:
            raise ValueError(f"{self.vertices} cycles in {epochs} epochs: expected an epoch for each")
        return [epochs * (i + 1) // self.vertices for i in range(self.vertices)]
