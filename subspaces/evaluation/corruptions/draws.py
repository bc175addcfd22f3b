"""Random numbers of images: those of an image are the same in every batch and on every device."""

import math

import torch
from torch import Tensor

from subspaces.core.randomness import stream, uniform

CALLS = 2**8  # of random numbers that one corruption may make


class Draws:
    """The random numbers of `count` images from number `first` on, of a seed and a `part`: corruption and severity.

    Each call has a stream of its own, in which image i has the same place in every batch.
    """

    def __init__(self, seed: int, part: int, first: int, count: int, device: torch.device) -> None:
        self.seed, self.part, self.first, self.count, self.device = seed, part, first, count, device
        self._calls = 0

    def uniform(self, *size: int) -> Tensor:
        """Return numbers uniform on [0, 1) of shape [n, *size]."""
        state = stream(self.seed, "corruptions", self.part * CALLS + self._calls).to(self.device)
        self._calls += 1
        state[1] = self.first * math.prod(size)
        return uniform(state, (self.count, *size))

    def normal(self, *size: int) -> Tensor:
        """Return normal numbers of shape [n, *size], two of every two uniform ones (Box & Muller, 1958)."""
        wanted = math.prod(size)
        pairs = (wanted + 1) // 2
        drawn = self.uniform(2, pairs)
        radius = (1 - drawn[:, 0]).log_().mul_(-2).sqrt_()  # [n, pairs]
        angle = drawn[:, 1].mul_(2 * math.pi)
        both = torch.cat([radius * angle.cos(), radius * angle.sin()], 1)
        return both[:, :wanted].reshape(self.count, *size)
