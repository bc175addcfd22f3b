"""Which part of the batches one of several processes takes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """What process `rank` of `ranks` takes of every batch, every `ranks`-th image of it; alone, all of it.

    Neighbours go to different processes, so that each has its part of every group that a batch is cut into. With
    `whole` a process takes every `ranks`-th batch instead, as it is: batch-norm statistics depend on what is in a
    batch. `most` is how many batches of an epoch are taken, by all processes together.
    """

    rank: int = 0
    ranks: int = 1
    whole: bool = False
    most: int | None = None

    def batches(self, count: int) -> range:
        """Return which of an epoch's batches are taken; where there are fewer than processes, each takes all."""
        count = count if self.most is None else min(self.most, count)
        return range(self.rank, count, self.ranks) if self.whole and count >= self.ranks else range(count)

    def images(self, size: int) -> slice:
        """Return which images of a batch are taken."""
        return slice(None) if self.whole or self.ranks == 1 else slice(self.rank, size, self.ranks)

    def weight(self, size: int) -> float:
        """Return what the mean over these images counts in the mean over all processes: 1, or nearly."""
        if self.whole or self.ranks == 1:
            return 1.0
        return len(range(self.rank, size, self.ranks)) * self.ranks / size


ALL = Share()
