"""Label noise and held-out images, fixed by the data seed and so the same for every method."""

import math

import torch
from torch import Tensor

from subspaces.core.randomness import permutation, stream, uniform
from subspaces.errors import ArgumentError


def held_out(n: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the indices that stay, in their old order, and the `count` that are held out, of n."""
    if not 0 <= count < n:
        raise ArgumentError(f"validation={count}: expected 0 to {n - 1}, part of the {n} training images")
    order = permutation(stream(seed, "validation"), n)
    return order[count:].sort().values, order[:count].sort().values


def noisy(labels: Tensor, classes: int, fraction: float, seed: int) -> Tensor:
    """Return labels of which the first ⌊fraction·n⌋ of a random order are drawn uniformly over all classes.

    A drawn label may be the right one: a fraction c leaves about c·(1 − 1/classes) of them wrong.
    Who gets a label, and which, depends on n and the seed alone; a larger fraction adds to a smaller one.
    """
    if not 0 <= fraction <= 1:
        raise ArgumentError(f"label_noise={fraction}: expected a fraction between 0 and 1")
    n = len(labels)
    state = stream(seed, "label noise")
    order = permutation(state, n)
    drawn = (uniform(state, (n,)) * classes).to(torch.int64)
    count = math.floor(fraction * n + 1e-9)  # 0.29 · 100 is just under 29 in floating point
    result = labels.clone()
    result[order[:count]] = drawn[:count]
    return result
