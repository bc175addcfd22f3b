"""Ensembles of checkpoints, at the low points of a learning rate that goes up and down.

Snapshot ensembles have long cycles (Huang et al., 2017), fast geometric ensembles short ones late in training (Garipov
et al., 2018).
"""

from dataclasses import dataclass

from subspaces.methods.checkpoints import Collected
from subspaces.methods.method import METHODS
from subspaces.methods.rates import cosine, cycle, short, warmup_cosine

START = 0.8
RATES = (0.5, 0.005)  # of the peak: where a short cycle begins and where a member is taken


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


@METHODS.add
@dataclass(frozen=True)
class Fge(Collected):
    """An ensemble of the low points."""

    name = "fge"
    meaning = "an ensemble of checkpoints, a short cycle apart"
    schedule = "fge"

    def rate(self, epoch: int, epochs: int, peak: float) -> float:
        """Cosine to nearly 0 at four fifths, then short triangles around m low points.

        A triangle falls in a line from half the peak to a hundredth of that, where a member is taken, and rises
        again. Training ends with the last member, at the low point of the last triangle.
        """
        turns = self.turns(epochs)
        if epoch < turns[0]:
            return warmup_cosine(epoch, turns[0], peak, short(turns[0]))
        start, end = cycle(epoch, turns)
        share = (epoch + 1 - start) / (end - start)
        falling = turns.index(start) % 2 == 0
        high, low = RATES
        return peak * (high + (low - high) * (share if falling else 1 - share))

    def checkpoints(self, epochs: int) -> list[int]:
        return self.turns(epochs)[1::2]

    def turns(self, epochs: int) -> list[int]:
        """Return where the rate turns: the start, a low point, a high point, …, the last low point."""
        start, sides = round(START * epochs), 2 * self.vertices - 1
        if epochs - start < sides:
            raise ValueError(
                f"{self.vertices} members in the last {epochs - start} of {epochs} epochs: expected an epoch for each "
                f"side of their triangles, {sides} in all"
            )
        return [start + (epochs - start) * i // sides for i in range(sides + 1)]
