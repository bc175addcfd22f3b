"""All streams of random numbers in one table, so that no two uses of a seed ever get the same numbers.

What tells a stream from the others is one whole number, which `randomness.new_state` hashes:

    bits  0 … 31   the seed of a recipe, or its data seed
    bits 32 … 55   the part: a branch, an epoch, a draw
    bits 56 … 61   the use
    bit  62        batch-norm statistics, which see the training images in an order of their own

A family draws its points and pairs from the stream of its bare seed. Torch's own generator starts from the bare seed
for initial weights, dropout in training and the samples of SWA-Gaussian, and from `number` for everything else.
"""

from typing import Literal

from torch import Tensor

from subspaces.core.randomness import new_state, uniform
from subspaces.errors import ArgumentError

Use = Literal[
    "family",
    "digits",
    "validation",
    "label noise",
    "batches",
    "augmentation",
    "points",
    "dropout",
    "mixtures",
    "corruptions",
    "selection",
    "processes",
]
USES: dict[Use, int] = {
    "family": 0,  # alpha in training, and the pairs of the penalties
    "digits": 1,  # which digits are for training
    "validation": 2,  # which images are held out
    "label noise": 3,
    "batches": 4,  # the order of the images; of resident ones also crops and flips
    "augmentation": 5,  # crops and flips of streamed images
    "points": 6,  # the random points of an evaluation
    "dropout": 7,  # masks of MC-dropout
    "mixtures": 8,  # random mixtures of branches
    "corruptions": 9,  # of test images
    "selection": 10,  # which examples are in which fold
    "processes": 11,  # dropout in training, in each further process of several
}
SEEDS, PARTS = 2**32, 2**24
BRANCHES, EPOCHS = 2**8, 2**16  # of streamed images, whose part is an epoch on a branch
_STATISTICS = 1 << 62


def number(seed: int, use: Use, part: int = 0) -> int:
    """Return the whole number that stands for one part of one use of a seed."""
    if not 0 <= part < PARTS:
        raise ArgumentError(f"part {part} of the random numbers for {use}: expected 0 to {PARTS - 1}")
    return seed + (part << 32) + (USES[use] << 56)


def stream(seed: int, use: Use, part: int = 0) -> Tensor:
    """Return the state of a stream at its beginning."""
    return new_state(number(seed, use, part))


def statistics_seed(seed: int) -> int:
    """Return the seed of a run's batches for batch-norm statistics, which no training has."""
    return seed + _STATISTICS


def on_branch(epoch: int, branch: int) -> int:
    """Return the part for an epoch of streamed images on a branch; branch 0 is the trunk."""
    return epoch + branch * EPOCHS


def mixture(kind: int, draw: int) -> int:
    """Return the part for a draw of a kind of mixture."""
    return kind + (draw << 8)


def permutation(state: Tensor, n: int) -> Tensor:
    """Return the numbers below n in random order, int64 [n], and advance `state` in place."""
    return uniform(state, (n,)).argsort(stable=True)  # stable: ties fall the same way everywhere
