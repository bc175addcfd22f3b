"""Read a loader once more while a training loop reads it, without changing what the loop gets."""

import copy
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from subspaces.core import checks
from subspaces.errors import ArgumentError


@contextmanager
def read_apart(loader: Iterable[Any], device: torch.device, *others: Any) -> Iterator[Iterable[Any]]:
    """Yield a loader of the same data; the loop that reads the given one goes on with the batches it would have got.

    Global random numbers, and generators that the loader, its samplers, its datasets and `others` own, are put back
    at the end.
    """
    if isinstance(loader, Iterator):
        raise ArgumentError(
            f"the train loader is an iterator, {checks.shown(loader)}, which can be read only once: pass a loader for "
            "the batch-norm statistics, loader=DataLoader(…)"
        )
    twin = loader
    if isinstance(loader, DataLoader):  # with workers of its own: persistent ones would drop what they have prepared
        twin = copy.copy(loader)
        vars(twin).update(persistent_workers=False, _iterator=None)
    seen: set[int] = set()
    restores = [each for part in (loader, *others) for each in _restores(part, seen)]
    restores += [partial(random.setstate, random.getstate()), partial(np.random.set_state, np.random.get_state())]
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield twin
    finally:
        for restore in restores:
            restore()


def _restores(part: Any, seen: set[int]) -> Iterator[Callable[[], Any]]:
    """Yield what puts back the generators of a loader, and of all samplers and datasets in it."""
    if isinstance(part, torch.Generator):
        yield partial(part.set_state, part.get_state())
    elif isinstance(part, np.random.Generator):
        yield partial(setattr, part.bit_generator, "state", copy.deepcopy(part.bit_generator.state))
    elif not isinstance(part, _OWNERS) and hasattr(part, "load_state_dict"):  # a loader of its own kind
        yield partial(part.load_state_dict, copy.deepcopy(part.state_dict()))
    elif id(part) not in seen and hasattr(part, "__dict__"):
        seen.add(id(part))
        for value in list(vars(part).values()):
            for member in value if isinstance(value, (list, tuple)) and len(value) < 1000 else [value]:
                if isinstance(member, _OWNERS):
                    yield from _restores(member, seen)


_OWNERS = (Sampler, Dataset, DataLoader, torch.Generator, np.random.Generator)
