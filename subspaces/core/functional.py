"""The network without its weights: filled with those of a point, run, and copied.

`torch.utils.checkpoint` keeps the inputs of a part of a network and runs it again when gradients are computed. By then
the weights of the point are no longer in the network, so a part that is checkpointed while a network runs is
remembered together with them.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from functools import partial
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.weight_norm import WeightNorm

from subspaces.core import _compat, batchnorm, checks, nested
from subspaces.errors import ArgumentError


class Filled(NamedTuple):
    """A network that runs with given weights."""

    network: nn.Module
    weights: Mapping[str, Tensor]
    tracking: bool
    """Whether its batch norms keep statistics."""


_running: ContextVar[tuple[Filled, ...]] = ContextVar("_running", default=())
"""The networks that run in this thread, the outermost first."""


class Slots:
    """Where a network keeps named tensors, looked up again only when its modules were exchanged."""

    def __init__(self, network: nn.Module, names: Iterable[str]) -> None:
        self.network, self.names = network, tuple(names)
        self._slots: list[tuple[dict[str, Any], str]] = []
        self._modules: list[tuple[dict[str, Any], str, Any]] = []  # on the way to them
        self._recurrent: list[nn.RNNBase] = []
        self._known = False

    def found(self) -> list[tuple[dict[str, Any], str]]:
        """Return the parameters, or buffers, of the module that holds each tensor, and its key there."""
        for children, key, child in self._modules:
            if children.get(key) is not child:
                self._known = False
        if not self._known:
            self._find()
        return self._slots

    def _find(self) -> None:
        watched = _compat.watch_checkpoints(_remembering, _refuse_reentrant)
        modules: dict[int, tuple[dict[str, Any], str, Any]] = {}
        parts: dict[int, Any] = {id(self.network): self.network}
        self._slots = []
        for name in self.names:
            part: Any = self.network
            *path, key = name.split(".")
            for child in path:
                modules[id(part._modules[child])] = part._modules, child, part._modules[child]
                part = part._modules[child]
                parts[id(part)] = part
            self._slots.append((part._parameters if key in part._parameters else part._buffers, key))
            if not watched:
                _compat.refuse_checkpoints(part, key)
        self._modules = list(modules.values())
        self._recurrent = [part for part in parts.values() if isinstance(part, nn.RNNBase)]
        self._known = True

    def put(self, tensors: Iterable[Tensor | None]) -> list[Tensor | None]:
        """Put tensors in their places, and return what was there."""
        before = []
        for (kept, key), tensor in zip(self.found(), tensors, strict=True):
            before.append(kept[key])
            kept[key] = tensor
        for part in self._recurrent:
            _compat.forget_weights(part)
        return before

    def restore(self, before: list[Tensor | None]) -> None:
        """Put back what `put` returned."""
        for (kept, key), tensor in zip(self._slots, before, strict=True):
            kept[key] = tensor
        for part in self._recurrent:
            _compat.forget_weights(part)

    @property
    def filled(self) -> bool:
        """Whether the network has weights at present."""
        kept, key = self.found()[0]
        return kept[key] is not None

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """Take the weights out of a network that is filled at present, as inside `with family.point()`."""
        before = self.put([None] * len(self.names))
        try:
            yield
        finally:
            self.restore(before)


def call(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    tracking: bool = True,
    slots: Slots | None = None,
) -> Any:
    """Run a network with the given weights, and leave none of them behind.

    This is what `functional_call` does, without its look at all parameters and buffers: a tenth of a small step.

    Args:
        network, weights, args, kwargs: as of `torch.func.functional_call`.
        tracking: parts of it that run again in a backward pass keep batch-norm statistics.
        slots: those of the network for the names of the weights, if they are known.
    """
    if torch.compiler.is_compiling():  # which traces torch's own way, and has the weights in its graph
        return functional_call(network, dict(weights), args, dict(kwargs))
    slots = slots or Slots(network, weights)
    before = slots.put(weights.values())
    token = _running.set((*_running.get(), Filled(network, weights, tracking)))
    try:
        return network(*args, **kwargs)
    finally:
        _running.reset(token)
        slots.restore(before)


@contextmanager
def filled(slots: Slots, weights: Mapping[str, Tensor], tracking: bool = True) -> Iterator[None]:
    """Let the network have the given weights as long as this lasts."""
    if torch.compiler.is_compiling():
        with _compat.reparametrized(slots.network, dict(weights)):
            yield
        return
    before = slots.put(weights.values())
    token = _running.set((*_running.get(), Filled(slots.network, weights, tracking)))
    try:
        yield
    finally:
        _running.reset(token)
        slots.restore(before)


def _runs_with(weights: Mapping[str, Tensor]) -> bool:
    """Return whether the innermost network that runs has these weights."""
    running = _running.get()
    return bool(running) and running[-1].weights is weights


@contextmanager
def refreshing(template: nn.Module, weights: Mapping[str, Tensor], refresh: Callable[[Any], object]) -> Iterator[None]:
    """Call `refresh` with the inputs of each call of a network with these weights; the call keeps no statistics.

    Its other methods could not be run at another point, so norms that would keep statistics in them are refused.
    """
    inside: list[AbstractContextManager[None]] = []

    def begin(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _runs_with(weights):  # and no family was called meanwhile
            if not inside:
                refresh((args, kwargs))
            inside.append(batchnorm.untracked(template))
            inside[-1].__enter__()

    def end(*_: Any) -> None:
        if _runs_with(weights) and inside:
            inside.pop().__exit__(None, None, None)

    def refuse(norm: nn.Module, args: Any) -> None:
        if norm.training and not inside and _runs_with(weights) and not _compat.in_backward():
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


def versions(weights: Mapping[str, Tensor]) -> dict[str, int]:
    """Return how often each weight was written in place; nothing where torch does not count."""
    if torch.compiler.is_compiling():
        return {}
    return {name: weight._version for name, weight in weights.items() if not weight.is_inference()}


# Activation checkpointing


class _Around(nn.Module):
    """Calls a function while a network has other weights."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return function(*args, **kwargs)


def _again(function: Callable[..., Any], running: tuple[Filled, ...], *args: Any, **kwargs: Any) -> Any:
    """Call a function while networks have the weights that they had."""
    if not running:
        return function(*args, **kwargs)
    (network, weights, tracking), *others = running  # the innermost fills last, where one network is there twice
    inner = partial(_again, function, tuple(others))
    named = {f"network.{name}": value for name, value in weights.items()}
    token: Token[Any] = _running.set((*_running.get(), running[0]))
    try:
        with nullcontext() if tracking else batchnorm.untracked(network):
            return functional_call(_Around(network), named, (inner, args, kwargs))
    finally:
        _running.reset(token)
        forget(network)


def _remembering(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a checkpoint runs again: the function with the weights of the networks that run now."""
    running = _running.get()
    return partial(_again, function, running) if running else function


def _refuse_reentrant() -> None:
    if _running.get():
        raise RuntimeError(
            "the network checkpoints with use_reentrant=True, which cannot give the gradient of a family: pass "
            "use_reentrant=False (gradient_checkpointing_kwargs={'use_reentrant': False} with Hugging Face)"
        )


# Networks of their own


def fill(network: nn.Module, parameters: Mapping[str, nn.Parameter | None]) -> None:
    """Put the named parameters (None: nothing) into their places in `network`."""
    for name, parameter in parameters.items():
        owner, _, key = name.rpartition(".")
        setattr(network.get_submodule(owner), key, parameter)


def forget(network: nn.Module) -> None:
    """Make all recurrent parts of a network drop their second list of weights."""
    for part in network.modules():
        if isinstance(part, nn.RNNBase):
            _compat.forget_weights(part)


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
    names = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    hooks = (hook for part in parts.values() for name in names for hook in vars(part)[name].values())
    owners = (hook.__self__ for hook in hooks if isinstance(hook, MethodType) and id(hook.__self__) not in parts)
    return {id(owner): owner for owner in owners} | {id(result): result.detach().clone() for result in results}


def copy_with(template: nn.Module, parameters: Mapping[str, nn.Parameter], share: bool = False) -> nn.Module:
    """Return a copy of the network with the given parameters, and with `share` the template's own frozen ones."""
    checks.flag("share", share)
    network = copied(template, {id(frozen): frozen for frozen in template.parameters()} if share else None)
    if parameters:
        fill(network, parameters)
    for part in network.modules():
        for hook in part._forward_pre_hooks.values() if parameters else ():
            if isinstance(hook, (WeightNorm, BasePruningMethod)):  # which compute their weights before each call
                hook(part, ())
        if isinstance(part, nn.RNNBase):
            _compat.keep_weights(part)
    return network
