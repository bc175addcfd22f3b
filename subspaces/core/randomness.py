"""Random numbers whose whole state is one small tensor, and the table of all streams of them.

A family draws its points from this instead of a `torch.Generator`, because a tensor is a buffer: it
moves with `.to()`, is copied, pickled, saved, broadcast by `DistributedDataParallel`, traced by
`torch.compile` and captured by a CUDA graph, and gives the same numbers on every device.

The numbers are SplitMix64 (Steele, Lea & Flood, 2014) in counter mode: number i of a stream is a
fixed bijective hash of `key + i * increment`, cut to its 24 highest bits.

Each stream has a seed of its own, one whole number, so that no two uses of a seed get the same numbers:

    bits  0 … 31   the seed of a recipe, or its data seed
    bits 32 … 55   the part: a branch, an epoch, a draw
    bits 56 … 61   the use
    bit  62        batch-norm statistics, which see the training images in an order of their own

A family draws its points and pairs from the stream of its bare seed. Torch's own generator starts from the bare seed
for initial weights, dropout in training and the samples of SWA-Gaussian, and from `number` for everything else.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from subspaces.core import _compat
from subspaces.errors import ArgumentError

_INCREMENT = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # shifts and multipliers
_WORD = 1 << 64
FEW = 16  # numbers that are drawn sooner one by one than as a tensor

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


def new_state(seed: int) -> Tensor:
    """Return the state (key, counter) of a new stream; streams of nearby seeds are unrelated."""
    key = _hash((seed + _INCREMENT) % _WORD)
    return torch.tensor([_signed(key ^ (key >> 31)), 0], dtype=torch.int64)


def _signed(value: int) -> int:
    """Return the int64 with the same 64 bits as the unsigned `value`."""
    value %= _WORD
    return value - _WORD if value >= _WORD // 2 else value


def _hash(word: int) -> int:
    """Return the word with its upper bits mixed."""
    for shift, multiplier in _ROUNDS:
        word = ((word ^ (word >> shift)) * multiplier) % _WORD
    return word


def uniform(state: Tensor, size: tuple[int, ...] = ()) -> Tensor:
    """Return float32 numbers of shape `size`, uniform on [0, 1), and advance `state` in place."""
    count = math.prod(size)
    if count <= FEW and _is_readable(state):
        found = _few(state, count)
        if count == 1:  # what a step draws, most often
            return torch.full(size, found[0], dtype=torch.float32)
        return torch.from_numpy(np.array(found, np.float32).reshape(size))
    word = torch.arange(count, device=state.device) + state[1]
    word = word * _signed(_INCREMENT) + state[0]
    for shift, multiplier in _ROUNDS:
        high = (word >> shift) & ((1 << (64 - shift)) - 1)  # int64 shifts copy the sign bit
        word = (word ^ high) * _signed(multiplier)
    state[1].add_(count)
    numbers = (((word >> 40) & 0xFFFFFF).float() * 2.0**-24).view(size)
    return keep(numbers) if torch.compiler.is_compiling() else numbers


def _is_readable(state: Tensor) -> bool:
    """Return whether the numbers of a state are at hand: not on a device, nor traced, nor transformed."""
    if torch.compiler.is_compiling() or type(state) is not Tensor or not state.is_cpu:
        return False
    return not (_compat.is_transformed(state) or _compat.is_tracing())


def _few(state: Tensor, count: int) -> list[float]:
    """Return the same numbers one by one: operations on a tensor of a few take several times as long."""
    at_hand = state.numpy()
    key, counter = at_hand.tolist()
    at_hand[1] = counter + count
    found = []
    for index in range(counter, counter + count):
        found.append((_hash((key + index * _INCREMENT) % _WORD) >> 40) * 2.0**-24)
    return found


@torch.library.custom_op("subspaces::keep", mutates_args=())
def keep(numbers: Tensor) -> Tensor:
    """Return a copy that a compiler cannot see through.

    A compiled backward pass may compute cheap things again instead of keeping them: here it would do
    so from the state after the draw, and get other numbers than the forward pass had.
    """
    return numbers.clone()


@keep.register_fake
def _(numbers: Tensor) -> Tensor:
    return torch.empty_like(numbers)


@keep.register_vmap
def _(info: Any, dims: tuple[int], numbers: Tensor) -> tuple[Tensor, int]:
    return keep(numbers), dims[0]


def pair(state: Tensor, m: int) -> Tensor | tuple[int, int]:
    """Return two different indices below `m`, every ordered pair equally likely: int64 [2], or numbers at hand."""
    if _is_readable(state):
        draws = np.array(_few(state, 2), np.float32)
        index = int(draws[0] * np.float32(m))
        return index, (index + 1 + int(draws[1] * np.float32(m - 1))) % m
    draw = uniform(state, (2,))
    first, step = (draw[0] * m).long(), (draw[1] * (m - 1)).long()
    return torch.stack([first, (first + 1 + step) % m])


def permutation(state: Tensor, n: int) -> Tensor:
    """Return the numbers below n in random order, int64 [n], and advance `state` in place."""
    return uniform(state, (n,)).argsort(stable=True)  # stable: ties fall the same way everywhere


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Let torch's own numbers on the CPU and on a device start from a seed, and put them back at the end."""
    gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if gpu else []):
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` would reach every device
        if gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
