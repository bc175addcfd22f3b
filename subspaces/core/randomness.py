"""Random numbers whose whole state is one small tensor, and streams of them that have nothing in common.

A family draws its points from this instead of a `torch.Generator`, because a tensor is a buffer: it
moves with `.to()`, is copied, pickled, saved, broadcast by `DistributedDataParallel`, traced by
`torch.compile` and captured by a CUDA graph, and gives the same numbers on every device.

The numbers are SplitMix64 (Steele, Lea & Flood, 2014) in counter mode: number i of a stream is a
fixed bijective hash of `key + i * increment`, cut to its 24 highest bits.

Each purpose of a seed (the order of the images, …) and each part of it (an epoch, …) has a stream whose key is
a hash of the three (`number`). A family draws its points and pairs from the stream of its bare seed.
"""

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from subspaces.core import _compat

_INCREMENT = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # shifts and multipliers
_WORD = 1 << 64
FEW = 16  # numbers that are drawn sooner one by one than as a tensor

SEEDS = 2**63
"""Seeds are whole numbers below this."""


def number(seed: int, purpose: str, part: object = 0) -> int:
    """Return the seed of one part of one purpose of a seed: a hash of the three, 0 to 2**63 - 1."""
    digest = hashlib.blake2b(repr((int(seed), purpose, part)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def stream(seed: int, purpose: str, part: object = 0) -> Tensor:
    """Return the state of a stream at its beginning."""
    return new_state(number(seed, purpose, part))


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
