"""The network without its weights, which every point of a family fills with its own."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.stateless import _reparametrize_module
from torch.nn.utils.weight_norm import WeightNorm

from subspaces.core import batchnorm, checkpointing, checks, nested, randomness
from subspaces.core.recurrent import forget, recurrent
from subspaces.errors import ArgumentError


def fill(network: nn.Module, parameters: Mapping[str, nn.Parameter | None]) -> None:
    """Put the named parameters (None: nothing) into their places in `network`."""
    for name, parameter in parameters.items():
        owner, _, key = name.rpartition(".")
        setattr(network.get_submodule(owner), key, parameter)


def call(
    template: nn.Module,
    weights: Mapping[str, Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tracking: bool = True,
) -> Any:
    """Run the network with the given weights, and leave none of them behind.

    `tracking`: batch norms in parts of it that run again in a backward pass keep statistics.
    """
    if torch.compiler.is_compiling():  # which follows torch's own way, and has the weights in its graph
        return functional_call(template, dict(weights), args, kwargs)
    with filled(template, weights, tracking):
        return template(*args, **kwargs)


@contextmanager
def filled(template: nn.Module, weights: Mapping[str, Tensor], tracking: bool = True) -> Iterator[None]:
    """Let the network have the given weights, and leave none of them behind.

    This is what `functional_call` does, without its look at all parameters and buffers: a tenth of a small step.
    """
    if torch.compiler.is_compiling():
        with _reparametrize_module(template, dict(weights)):
            yield
        return
    parts = recurrent(template)
    slots = [_slot(template, name) for name in weights]
    before = [tensors[key] for tensors, key in slots]
    token = checkpointing.remember(template, weights, tracking)
    try:
        forget(parts)
        _put(weights.values(), slots)
        yield
    finally:
        checkpointing.forget(token)
        _put(before, slots)
        forget(parts)


@contextmanager
def refreshing(template: nn.Module, weights: Mapping[str, Tensor], refresh: Callable[[Any], object]) -> Iterator[None]:
    """Before each call of the network that has these weights, pass its inputs on; the call itself keeps no statistics.

    What is called of it besides could not be run at another point, so norms that would keep statistics are refused.
    """
    inside: list[AbstractContextManager[None]] = []

    def begin(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if checkpointing.runs_with(weights):  # and no family was called meanwhile
            if not inside:
                refresh((args, kwargs))
            inside.append(batchnorm.untracked(template))
            inside[-1].__enter__()

    def end(*_: Any) -> None:
        if checkpointing.runs_with(weights) and inside:
            inside.pop().__exit__(None, None, None)

    def refuse(norm: nn.Module, args: Any) -> None:
        if norm.training and not inside and checkpointing.runs_with(weights) and not randomness.in_backward():
            raise ArgumentError(
                "statistics_every= runs the network's forward at the midpoint, and inside family.point() another of "
                f"its methods ran {type(norm).__name__}: call the network itself, net(x), or leave statistics_every= "
                "out and call subspaces.recalibrate before you evaluate"
            )

    found = batchnorm.tracked(template).values()
    hooks = [template.register_forward_pre_hook(begin, prepend=True, with_kwargs=True)]
    hooks += [template.register_forward_hook(end, always_call=True)]
    hooks += [norm.register_forward_pre_hook(refuse) for norm in found]
    try:
        yield
    finally:
        while inside:
            inside.pop().__exit__(None, None, None)
        for hook in hooks:
            hook.remove()


@contextmanager
def emptied(template: nn.Module, names: Sequence[str]) -> Iterator[None]:
    """Take the weights out of a network that is filled just now, as inside `with family.point()`."""
    slots = [_slot(template, name) for name in names]
    before = [tensors[key] for tensors, key in slots]
    _put([None] * len(slots), slots)
    try:
        yield
    finally:
        _put(before, slots)


def versions(weights: Mapping[str, Tensor]) -> dict[str, int]:
    """Return how often each weight was written in place; nothing where torch does not count."""
    if torch.compiler.is_compiling():
        return {}
    return {name: weight._version for name, weight in weights.items() if not weight.is_inference()}


def is_filled(template: nn.Module, names: Sequence[str]) -> bool:
    """Say whether the network has weights just now."""
    tensors, key = _slot(template, names[0])
    return tensors[key] is not None


def _slot(network: nn.Module, name: str) -> tuple[dict[str, Any], str]:
    """Return where a network keeps a tensor: the parameters, or buffers, of one of its parts, and the key there."""
    part: Any = network
    *path, key = name.split(".")
    for child in path:
        part = part._modules[child]
    return part._parameters if key in part._parameters else part._buffers, key


def _put(tensors: Iterable[Tensor | None], slots: Iterable[tuple[dict[str, Any], str]]) -> None:
    for tensor, (kept, key) in zip(tensors, slots, strict=True):
        kept[key] = tensor


def copied(network: nn.Module, known: Mapping[int, Any] | None = None) -> nn.Module:
    """Return a deep copy of a network; `known` maps the `id` of what is not copied to what stands in its place."""
    return copy.deepcopy(network, {**memo(network), **(known or {})})


def memo(network: nn.Module) -> dict[int, Any]:
    """Return what `copy.deepcopy` cannot copy in a network, or should not, by `id`: what stands in its place.

    Results of the last call, such as a loss, or the weight that old-style weight norm and pruning compute, are copied
    without their graph, as torch refuses to. An object outside of the network whose method is a hook is shared.
    """
    parts = {id(part): part for part in network.modules()}
    kept = (value for part in parts.values() for value in vars(part).values())
    results = (tensor for value in kept for tensor in nested.tensors(value) if not tensor.is_leaf)
    hooks = (hook for part in parts.values() for name in _HOOKS for hook in vars(part)[name].values())
    owners = (hook.__self__ for hook in hooks if isinstance(hook, MethodType) and id(hook.__self__) not in parts)
    return {id(owner): owner for owner in owners} | {id(result): result.detach().clone() for result in results}


_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def copy_with(template: nn.Module, parameters: Mapping[str, nn.Parameter], share: bool = False) -> nn.Module:
    """Return a copy of the network with the given parameters, and with `share` the template's own frozen ones."""
    checks.flag("share", share)
    network = copied(template, {id(frozen): frozen for frozen in template.parameters()} if share else None)
    if parameters:
        fill(network, parameters)
        _compute_weights(network)
    for part in recurrent(network):
        part._init_flat_weights()
    return network


def _compute_weights(network: nn.Module) -> None:
    """Let old-style weight norm and pruning compute their weights, as they do before each call."""
    for part in network.modules():
        for hook in part._forward_pre_hooks.values():
            if isinstance(hook, (WeightNorm, BasePruningMethod)):
                hook(part, ())
