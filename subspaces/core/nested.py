"""Batches: nested tensors, cut along the batch and joined again, and which of them are inputs and target."""

import copy
import dataclasses
import inspect
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.errors import ArgumentError

LABELS = ("labels", "label", "targets", "target", "y")
"""The names that a target may have in a batch that is a dict."""


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


def tensors(value: Any) -> list[Tensor]:
    """Return all tensors in `value`, in order."""
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in children(value) or [] for tensor in tensors(part)]


def moved(value: Any, device: torch.device) -> Any:
    """Return `value` with every tensor in it on a device."""
    for tensor in tensors(value):
        if tensor.is_meta and device.type != "meta":
            raise ArgumentError(
                f"a batch holds a tensor of shape {tuple(tensor.shape)} on the meta device, which has no numbers: "
                "expected batches of data"
            )
    return apply(lambda tensor: tensor.to(device, non_blocking=True), value)


def batch_size(value: Any) -> int | None:
    """Return the length of the first tensor found in `value`, or None if it holds none."""
    sizes = [tensor.shape[0] for tensor in tensors(value) if tensor.ndim]
    return sizes[0] if sizes else None


def is_empty(value: Any) -> bool:
    """Return whether `value` holds tensors with a first dimension, and in all of them it is 0."""
    sizes = [len(tensor) for tensor in tensors(value) if tensor.ndim]
    return bool(sizes) and not any(sizes)


def split(value: Any, size: int, groups: int) -> list[Any]:
    """Cut every tensor of length `size` in `value` into groups; everything else goes to all of them."""

    def cut(tensor: Tensor, index: int) -> Tensor:
        whole = tensor.ndim == 0 or tensor.shape[0] != size
        return tensor if whole else tensor.tensor_split(groups)[index]

    return [apply(partial(cut, index=index), value) for index in range(groups)]


def group_sizes(size: int, groups: int) -> list[int]:
    """Return how many examples each group of a batch gets."""
    return [size // groups + (index < size % groups) for index in range(groups)]


def join(values: list[Any], sizes: list[int]) -> Any:
    """Put the outputs of groups of these sizes together: tensors end to end, scalars (a loss) as their mean."""
    first = values[0]
    if not isinstance(first, Tensor):
        if children(first) is None:
            return first
        columns = zip(*(children(value) or [] for value in values), strict=True)
        return rebuild(first, [join(list(column), sizes) for column in columns])
    if not first.ndim:
        whole = not (first.is_floating_point() or first.is_complex())
        weighted = [(value.float() if whole else value) * size for value, size in zip(values, sizes, strict=True)]
        return torch.stack(weighted).sum(0) / sum(sizes)
    if [len(value) for value in values] != sizes:
        raise ArgumentError(
            f"samples={len(values)}: the network returned a tensor of shape {tuple(first.shape)} for {sizes[0]} "
            "examples: expected the batch in the first dimension; return it so, or use samples=1"
        )
    return torch.cat(values)


# Inputs and targets


def inputs(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what goes into the network: all but the target of a tuple, or of a dict by keyword."""
    if isinstance(batch, Mapping):
        return (), {name: value for name, value in batch.items() if name != _label(batch)}
    if isinstance(batch, (tuple, list)):
        return tuple(batch[:-1]) if len(batch) > 1 else tuple(batch), {}
    return (batch,), {}


def target(batch: Any, instead: str) -> Any:
    """Return what is to be predicted: the last of a tuple, or the labels of a dict; `instead` is another way out."""
    if isinstance(batch, Mapping) and (name := _label(batch)) is not None:
        return batch[name]
    if isinstance(batch, (tuple, list)) and len(batch) > 1:
        return batch[-1]
    parts = f" of {', '.join(map(repr, batch))}" if isinstance(batch, Mapping) else ""
    raise ArgumentError(
        f"a batch is a {type(batch).__name__}{parts}: expected (inputs, target), a dict with 'labels', or {instead}"
    )


def numbers(target: Any, device: torch.device, expected: str) -> Tensor:
    """Return targets as a tensor, or raise what is wrong with them."""
    try:
        found = torch.as_tensor(target, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = None
    if found is None or found.layout != torch.strided or found.is_quantized:
        raise ArgumentError(
            f"the targets of a batch are {checks.shown(target)}, a {type(target).__name__}: expected {expected}"
        )
    return found


def check_classes(labels: Tensor, classes: int, instead: str) -> None:
    """Refuse labels that are none of the classes; `instead` is another way out."""
    wrong = (labels < 0) | (labels >= classes)
    if bool(wrong.any()):
        raise ArgumentError(
            f"a target is {int(labels[wrong][0])}: expected class numbers from 0 to {classes - 1}, because the network "
            f"returns {classes} logits; {instead}"
        )


def run(network: Any, args: Sequence[Any], named: Mapping[str, Any], call: Callable[[], Any]) -> Any:
    """Return what `call()` does, or raise that the network does not take these inputs."""
    try:
        return call()
    except TypeError as error:
        wrong: Exception = error
        fits = any(isinstance(each, Tensor) for each in (*args, *named.values()))
        try:
            inspect.signature(getattr(network, "forward", network)).bind(*args, **named)
        except (TypeError, ValueError) as misfit:
            wrong, fits = misfit, False
        if fits:
            raise  # a mistake within the network
        given = ", ".join([type(each).__name__ for each in args] + [f"{name}=…" for name in named]) or "nothing"
        raise ArgumentError(
            f"the network does not take the inputs of a batch, ({given}): {wrong}; expected batches of "
            "the network's inputs and the target, such as (inputs, target) or {'inputs': …, 'labels': …}; for any "
            "others evaluate and recalibrate take forward=, a function of (network, batch)"
        ) from error


def _label(batch: Mapping[str, Any]) -> str | None:
    return next((name for name in LABELS if name in batch), None)
