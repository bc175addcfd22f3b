"""Cut the nested inputs of a network along the batch, and join its nested outputs again."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor


def rebuild(value: Any, parts: list[Any]) -> Any:
    """Return a container like `value` (dict, tuple, list, dataclass) that holds `parts` in its order."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*parts)
    if isinstance(value, (tuple, list)):
        return type(value)(parts)
    if type(value) is dict or (isinstance(value, Mapping) and not isinstance(value, MutableMapping)):
        return type(value)(dict(zip(value, parts, strict=True)))  # type: ignore[call-arg]
    like = copy.copy(value)  # a constructor may take something else than items or fields
    if isinstance(value, Mapping):
        for key, part in zip(value, parts, strict=True):
            like[key] = part
    else:
        for field, part in zip(dataclasses.fields(value), parts, strict=True):
            object.__setattr__(like, field.name, part)  # frozen ones too
    return like


def children(value: Any) -> list[Any] | None:
    """Return what a container holds, in order, or None if `value` is no container."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (tuple, list)):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return None


def apply(function: Callable[[Tensor], Any], value: Any) -> Any:
    """Return `value` with `function` applied to every tensor in it."""
    if isinstance(value, Tensor):
        return function(value)
    inner = children(value)
    return value if inner is None else rebuild(value, [apply(function, part) for part in inner])


def batch_size(value: Any) -> int | None:
    """Return the length of the first tensor found in `value`, or None if it holds none."""
    if isinstance(value, Tensor):
        return value.shape[0] if value.ndim else None
    for part in children(value) or []:
        if (size := batch_size(part)) is not None:
            return size
    return None


def split(value: Any, size: int, groups: int) -> list[Any]:
    """Cut every tensor of length `size` in `value` into groups; everything else goes to all of them."""

    def part(index: int) -> Callable[[Tensor], Tensor]:
        def cut(tensor: Tensor) -> Tensor:
            whole = tensor.ndim == 0 or tensor.shape[0] != size
            return tensor if whole else tensor.tensor_split(groups)[index]

        return cut

    return [apply(part(index), value) for index in range(groups)]


def join(values: list[Any]) -> Any:
    """Put the outputs of the groups together: tensors end to end, scalars (a loss) as their mean."""
    first = values[0]
    if isinstance(first, Tensor):
        return torch.cat(values) if first.ndim else _mean(torch.stack(values))
    inner = children(first)
    if inner is None:
        return first
    columns = [children(value) or [] for value in values]
    return rebuild(first, [join(list(column)) for column in zip(*columns, strict=True)])


def _mean(scalars: Tensor) -> Tensor:
    whole = not (scalars.is_floating_point() or scalars.is_complex())
    return scalars.float().mean() if whole else scalars.mean()
