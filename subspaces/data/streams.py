"""Streams of random numbers for each use of a data seed, the same on every device and version of torch.

Uses have streams of their own, or the first epoch would visit the images in the order that chose
which of them get noisy labels.
"""

from typing import Literal

from torch import Tensor

from subspaces.randomness import new_state, uniform

Use = Literal["digits", "validation", "label noise", "batches", "augmentation"]
_USES: dict[Use, int] = {"digits": 1, "validation": 2, "label noise": 3, "batches": 4, "augmentation": 5}


def stream(seed: int, use: Use) -> Tensor:
    """Return the state of the stream for one use of a seed."""
    return new_state(seed + (_USES[use] << 56))


def permutation(state: Tensor, n: int) -> Tensor:
    """Return the numbers below n in random order, int64 [n], and advance `state` in place."""
    return uniform(state, (n,)).argsort(stable=True)  # stable: ties fall the same way everywhere
