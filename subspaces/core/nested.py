"""Batches: nested tensors, cut into groups with a point each, and which of them are inputs and target."""

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from subspaces.core import checks, geometry, randomness
from subspaces.core._compat import pytree
from subspaces.errors import ArgumentError
from subspaces.text import nearest

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
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            whole, leaf = leaf, copy.copy(leaf)
            for name in (each.name for each in dataclasses.fields(whole) if hasattr(whole, each.name)):
                object.__setattr__(leaf, name, apply(function, getattr(whole, name)))  # also where it is frozen
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


# Several points in one batch, and the features inside a network


class Sampled(NamedTuple):
    """What a family returns when it is asked for features as well.

    Example:
        >>> output, alphas, features = family(x, samples=2, features="head")
        >>> len(alphas), features[0].shape
        (2, torch.Size([8, 8]))
    """

    output: Any
    """The network's output for the whole batch."""
    alphas: tuple[Tensor, ...]
    """The point that each group of the batch was run at."""
    features: tuple[Tensor, ...]
    """The input of the named module, one tensor per group."""


@contextmanager
def watch(network: nn.Module, name: str | None) -> Iterator[list[Tensor]]:
    """Collect the first tensor that enters the named module at each call; nothing for None."""
    seen: list[Tensor] = []
    if name is None:
        yield seen
        return

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.extend([value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)][:1])

    modules = dict(network.named_modules())
    if name not in modules:
        raise KeyError(f"features={name!r}: no module of that name in the network; {nearest(name, modules)}")
    handle = modules[name].register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


def in_groups(
    network: nn.Module,
    inputs: tuple[tuple[Any, ...], dict[str, Any]],
    count: int,
    features: str | None,
    run: Callable[[Any, Any], tuple[Any, Any]],
) -> Any:
    """Run a network on each group of a batch at a point of its own, with the features inside on request."""
    size = batch_size(inputs) if count > 1 else 1
    if size is None:
        kinds = ", ".join(type(each).__name__ for each in (*inputs[0], *inputs[1].values()))
        raise ArgumentError(
            f"samples={count}: found no tensor to cut in the inputs ({kinds}): pass tensors in tuples, lists or "
            "dicts, or register the class with torch.export.register_dataclass"
        )
    groups = max(1, min(count, size))
    alphas, outputs, entered = [], [], []
    with watch(network, features) as seen:
        for index in range(groups):
            alpha, output = run(*(_cut(inputs, size, groups, index) if groups > 1 else inputs))
            alphas.append(alpha)
            outputs.append(output)
            entered.extend(seen[-1:])  # of the last call, where the network calls that module several times
            seen.clear()
    output = _joined(outputs, [size // groups + (i < size % groups) for i in range(groups)])
    if features is None:
        return output
    if len(entered) < groups:
        raise ArgumentError(f"features={features!r}: the network ran without calling that module on a tensor")
    return Sampled(output, tuple(alphas), tuple(entered))


def _cut(inputs: Any, size: int, groups: int, index: int) -> Any:
    """Return the group of that index: of every tensor of length `size` its part, and everything else."""

    def part(tensor: Tensor) -> Tensor:
        return tensor.tensor_split(groups)[index] if tensor.ndim and tensor.shape[0] == size else tensor

    return apply(part, inputs)


def _joined(outputs: list[Any], sizes: list[int]) -> Any:
    """Put the outputs of groups of these sizes together: tensors end to end, scalars (a loss) as their mean."""
    if len(outputs) == 1:
        return outputs[0]
    flat = [pytree.tree_flatten(output) for output in outputs]
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    return pytree.tree_unflatten([_joined_leaf(column, sizes) for column in columns], flat[0][1])


def _joined_leaf(parts: Sequence[Any], sizes: list[int]) -> Any:
    first = parts[0]
    if not isinstance(first, Tensor):
        if first is None or isinstance(first, (bool, int, float, str)):
            return first
        raise ArgumentError(
            f"samples={len(parts)}: the network returned a {type(first).__name__}, and only tensors in tuples, lists "
            "and dicts are joined: return these, or register the class with torch.export.register_dataclass"
        )
    if not first.ndim:
        whole = not (first.is_floating_point() or first.is_complex())
        weighted = [(part.float() if whole else part) * size for part, size in zip(parts, sizes, strict=True)]
        return torch.stack(weighted).sum(0) / sum(sizes)
    if [len(part) for part in parts] != sizes:
        raise ArgumentError(
            f"samples={len(parts)}: the network returned a tensor of shape {tuple(first.shape)} for {sizes[0]} "
            "examples: expected the batch in the first dimension; return it so, or use samples=1"
        )
    return torch.cat(list(parts))


def feature_similarity(family: Any, sampled: Sampled, strength: float = 1.0) -> Tensor:
    """Return strength |alpha_j - alpha_k| cos^2(phi_j, phi_k) for two random groups of one call.

    `sampled` is the result of `family(x, samples=s, features="head")`. The features phi of a group are one long vector;
    groups that differ in size are compared on what they share. On a simplex the distance of the points is half their L1
    distance; in a layerwise family it is the mean over layers.

    Example:
        >>> sampled = family(x, samples=2, features="head")
        >>> loss = F.cross_entropy(sampled.output, y) + family.feature_similarity(sampled)
    """
    if not isinstance(sampled, Sampled):
        raise ArgumentError(f"feature_similarity({type(sampled).__name__}): expected family(x, samples=2, features=…)")
    if len(sampled.features) < 2:
        return torch.zeros((), device=family.device)
    chosen = torch.as_tensor(randomness.pair(family.rng, len(sampled.features)), device=family.device)
    size = min(len(group) for group in sampled.features)
    phi = torch.stack([group[:size].flatten() for group in sampled.features]).index_select(0, chosen)
    first, second = torch.stack(sampled.alphas).index_select(0, chosen)
    apart: Tensor = family.shape.separation(first, second).mean()
    return strength * (apart * geometry.cos2([phi]))
