"""Batches: nested tensors, and which of them are inputs and target."""

import copy
import inspect
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.core._compat import pytree
from subspaces.errors import ArgumentError

LABELS = ("labels", "label", "targets", "target", "y")
"""The names that a target may have in a batch that is a dict."""


def apply(function: Callable[[Tensor], Any], value: Any) -> Any:
    """Return `value` with `function` applied to every tensor in it."""

    def change(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return function(leaf)
        if isinstance(leaf, MutableMapping):  # which torch takes for no container, such as a tokenizer's encoding
            leaf = copy.copy(leaf)
            leaf.update(apply(function, dict(leaf)))
        return leaf

    return pytree.tree_map(change, value)


def tensors(value: Any) -> list[Tensor]:
    """Return all tensors in `value`, in order."""
    found: list[Tensor] = []
    apply(found.append, value)
    return found


def moved(value: Any, device: torch.device) -> Any:
    """Return `value` with every tensor in it on a device."""
    return apply(lambda tensor: tensor.to(device, non_blocking=True), value)


def batch_size(value: Any) -> int | None:
    """Return the length of the first tensor found in `value`, or None if it holds none."""
    sizes = [tensor.shape[0] for tensor in tensors(value) if tensor.ndim]
    return sizes[0] if sizes else None


def is_empty(value: Any) -> bool:
    """Return whether `value` holds tensors with a first dimension, and in all of them it is 0."""
    sizes = [len(tensor) for tensor in tensors(value) if tensor.ndim]
    return bool(sizes) and not any(sizes)


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
        return torch.as_tensor(target, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ArgumentError(
            f"the targets of a batch are {checks.shown(target)}, a {type(target).__name__}: expected {expected}"
        ) from None


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
