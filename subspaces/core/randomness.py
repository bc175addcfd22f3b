"""Random numbers whose whole state is one small tensor.

A family draws its points from this instead of a `torch.Generator`, because a tensor is a buffer: it
moves with `.to()`, is copied, pickled, saved, broadcast by `DistributedDataParallel`, traced by
`torch.compile` and captured by a CUDA graph, and gives the same numbers on every device.

The numbers are SplitMix64 (Steele, Lea & Flood, 2014) in counter mode: number i of a stream is a
fixed bijective hash of `key + i * increment`, cut to its 24 highest bits.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

_INCREMENT = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_WORD = 1 << 64
FEW = 16  # numbers that are drawn sooner one by one than as a tensor


def _signed(value: int) -> int:
    """Return the int64 with the same 64 bits as the unsigned `value`."""
    value %= _WORD
    return value - _WORD if value >= _WORD // 2 else value


def new_state(seed: int) -> Tensor:
    """Return the state (key, counter) of a new stream; streams of nearby seeds are unrelated."""
    key = _hash((seed + _INCREMENT) % _WORD)
    return torch.tensor([_signed(key ^ (key >> 31)), 0], dtype=torch.int64)


def uniform(state: Tensor, size: tuple[int, ...] = ()) -> Tensor:
    """Return float32 numbers of shape `size`, uniform on [0, 1), and advance `state` in place."""
    count = math.prod(size)
    if count <= FEW and _readable(state):
        return torch.from_numpy(_few(state.numpy(), count).reshape(size))
    word = torch.arange(count, device=state.device) + state[1]
    word = word * _signed(_INCREMENT) + state[0]
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        high = (word >> shift) & ((1 << (64 - shift)) - 1)  # int64 shifts copy the sign bit
        word = (word ^ high) * _signed(multiplier)
    state[1].add_(count)
    numbers = (((word >> 40) & 0xFFFFFF).float() * 2.0**-24).view(size)
    return keep(numbers) if torch.compiler.is_compiling() else numbers


def _readable(state: Tensor) -> bool:
    """Say whether the numbers of a state are at hand: not on a device, nor traced, nor under a function transform."""
    plain = type(state) is Tensor and state.device.type == "cpu" and not torch.compiler.is_compiling()
    return plain and not (torch._C._functorch.is_functorch_wrapped_tensor(state) or torch._C._get_tracing_state())


def _few(state: "np.ndarray[Any, Any]", count: int) -> "np.ndarray[Any, Any]":
    """Return the same numbers, one by one: of a few, operations on tensors take several times as long."""
    key, counter = state.tolist()
    state[1] = counter + count
    words = (_hash((key + index * _INCREMENT) % _WORD) for index in range(counter, counter + count))
    return np.array([(word >> 40) * 2.0**-24 for word in words], np.float32)


def _hash(word: int) -> int:
    """Return the word with its bits mixed; its lower ones are not yet."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        word = ((word ^ (word >> shift)) * multiplier) % _WORD
    return word


def in_backward() -> bool:
    """Say whether gradients are being computed, as when activation checkpointing runs something again."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def refuse_in_backward(remedy: str) -> None:
    """Refuse to draw while gradients are computed: activation checkpointing would get other numbers than before."""
    if in_backward():
        raise RuntimeError(
            "a point was drawn in a backward pass (activation checkpointing?) and is not the one of the forward "
            f"pass: draw it before, {remedy}"
        )


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


def pair(state: Tensor, m: int) -> Tensor:
    """Return two different indices below `m`, every ordered pair equally likely, as int64 [2]."""
    draws = uniform(state, (2,))
    first, step = (draws[0] * m).long(), (draws[1] * (m - 1)).long()
    return torch.stack([first, (first + 1 + step) % m])


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
