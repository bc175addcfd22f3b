"""Reading a loader once more, while somebody else is reading it, without a trace."""

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

Restore = Callable[[], Any]


@contextmanager
def read_apart(loader: Iterable[Any], *others: Any) -> Iterator[Iterable[Any]]:
    """Yield a loader of the same data; whoever reads the given one goes on with the batches they would have got.

    Generators that the loader, its samplers, its data sets and `others` own are put back at the end. Global random
    numbers are the caller's to keep.
    """
    if isinstance(loader, Iterator):
        raise ArgumentError(
            f"the train loader is an iterator, {checks.shown(loader)}, which can be read only once: pass a loader for "
            "the batch-norm statistics, loader=DataLoader(…)"
        )
    restore = [each for part in (loader, *others) for each in _restores(part)]
    try:
        yield _twin(loader)
    finally:
        for each in restore:
            each()


@contextmanager
def same_numbers(device: torch.device) -> Iterator[None]:
    """Put the global random numbers of Python, numpy and torch back at the end."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _twin(loader: Iterable[Any]) -> Iterable[Any]:
    """Return a loader with workers of its own: persistent ones would drop what they have prepared for others."""
    if not isinstance(loader, DataLoader):
        return loader
    twin: DataLoader[Any] = copy.copy(loader)
    vars(twin).update(persistent_workers=False, _iterator=None)
    return twin


def _restores(loader: Any) -> list[Restore]:
    """Return what puts the state of a loader back to what it is now."""
    if not isinstance(loader, DataLoader) and hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict"):
        return [partial(loader.load_state_dict, copy.deepcopy(loader.state_dict()))]
    seen: dict[int, Any] = {}
    _find(loader, seen)
    found = (_restore(each) for part in seen.values() for each in _owned(part))
    return [each for each in found if each is not None]


def _find(part: Any, seen: dict[int, Any]) -> None:
    """Find a loader and all samplers and data sets in it."""
    if id(part) not in seen:
        seen[id(part)] = part
        for each in _owned(part):
            for member in each if isinstance(each, (list, tuple)) and len(each) < 1000 else [each]:
                if isinstance(member, (Sampler, Dataset, DataLoader)):
                    _find(member, seen)


def _owned(part: Any) -> list[Any]:
    return list(vars(part).values()) if hasattr(part, "__dict__") else []


def _restore(generator: Any) -> Restore | None:
    """Return what puts a generator back to its state of now, or None for anything else."""
    if isinstance(generator, torch.Generator):
        return partial(generator.set_state, generator.get_state())
    if isinstance(generator, np.random.Generator):
        return partial(setattr, generator.bit_generator, "state", copy.deepcopy(generator.bit_generator.state))
    if isinstance(generator, np.random.RandomState):
        return partial(generator.set_state, generator.get_state())
    if isinstance(generator, random.Random):
        return partial(generator.setstate, generator.getstate())
    return None
