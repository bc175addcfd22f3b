"""The network without its weights: filled with those of a point, run, and copied.

`torch.utils.checkpoint` keeps the inputs of a part of a network and runs it again when gradients are computed. By then
the weights of the point are no longer in the network, so a part that is checkpointed while a network runs is
remembered together with them.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar, Token
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.weight_norm import WeightNorm

from subspaces.core import _compat, batchnorm, checks, nested
from subspaces.errors import ArgumentError

_running: ContextVar[tuple["Filled", ...]] = ContextVar("_running", default=())
"""The networks that run in this thread, the outermost first."""


class Slots:
    """Where a network keeps named tensors, looked up again only when its modules were exchanged."""

    def __init__(self, network: nn.Module, names: Iterable[str]) -> None:
        self.network, self.names = network, tuple(names)
        self._slots: list[tuple[dict[str, Any], str]] = []
        self._modules: list[tuple[dict[str, Any], str, Any]] = []  # on the way to them
        self._recurrent: list[nn.RNNBase] = []

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

    def put(self, tensors: Iterable[Tensor | None]) -> list[Tensor | None]:
        """Put tensors in their places, and return what was there."""
        for children, key, child in self._modules:
            if children.get(key) is not child:
                self._slots = []
        if not self._slots:
            self._find()
        before = []
        for (kept, key), tensor in zip(self._slots, tensors, strict=True):
            before.append(kept[key])
            kept[key] = tensor
        for part in self._recurrent:
            _compat.forget_weights(part)
        return before

    @property
    def filled(self) -> bool:
        """Whether the network has weights at present."""
        return any(kept[key] is not None for kept, key in self._slots)

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """Take the weights out of a network for as long as this lasts."""
        before = self.put([None] * len(self.names))
        try:
            yield
        finally:
            self.put(before)


class Filled:
    """A context in which a network has the given weights; `tracking`: what runs again later keeps statistics."""

    def __init__(self, slots: Slots, weights: Mapping[str, Tensor], tracking: bool = True) -> None:
        self.slots, self.weights, self.tracking = slots, weights, tracking

    def __enter__(self) -> None:
        self._before = self.slots.put(self.weights.values())
        self._token: Token[Any] = _running.set((*_running.get(), self))

    def __exit__(self, *_: Any) -> None:
        _running.reset(self._token)
        self.slots.put(self._before)


def filled(slots: Slots, weights: Mapping[str, Tensor], tracking: bool = True) -> AbstractContextManager[None]:
    """Return a context in which a network has the given weights, also for a compiler."""
    if torch.compiler.is_compiling():
        context: AbstractContextManager[None] = _compat.reparametrized(slots.network, dict(weights))
        return context
    return Filled(slots, weights, tracking)


def call(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    tracking: bool = True,
    slots: Slots | None = None,
) -> Any:
    """Run a network with the given weights, and leave none of them behind.

    This is `functional_call` without its look at all parameters and buffers, a tenth of a small step. `slots` are those
    of the network for the names of the weights, if they are known.
    """
    if torch.compiler.is_compiling():  # which traces torch's own way, and has the weights in its graph
        return functional_call(network, dict(weights), args, dict(kwargs))
    with Filled(slots or Slots(network, weights), weights, tracking):
        return network(*args, **kwargs)


def _runs_with(weights: Mapping[str, Tensor]) -> bool:
    """Return whether the innermost network that runs has these weights."""
    running = _running.get()
    return bool(running) and running[-1].weights is weights


@contextmanager
def refreshing(template: nn.Module, weights: Mapping[str, Tensor], refresh: Callable[[Any], object]) -> Iterator[None]:
    """Call `refresh` with the inputs of each call of a network with these weights; the call keeps no statistics.

    Its other methods could not be run at another point, so norms that would keep statistics in them are refused.
    """
    inside = ExitStack()
    calls: list[bool] = []

    def begin(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _runs_with(weights):  # and no family was called meanwhile
            if not calls:
                refresh((args, kwargs))
                inside.enter_context(batchnorm.untracked(template))
            calls.append(True)

    def end(*_: Any) -> None:
        if _runs_with(weights) and calls:
            calls.pop()
            if not calls:
                inside.close()

    def refuse(norm: nn.Module, args: Any) -> None:
        if norm.training and not calls and _runs_with(weights) and not _compat.in_backward():
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
        with inside:
            yield
    finally:
        for hook in hooks:
            hook.remove()


# Activation checkpointing


def _again(function: Callable[..., Any], running: tuple[Filled, ...], *args: Any, **kwargs: Any) -> Any:
    """Call a function while networks have the weights that they had."""
    with ExitStack() as stack:
        for each in running:  # the innermost fills last, where one network is there twice
            stack.enter_context(Filled(each.slots, each.weights, each.tracking))
            stack.enter_context(nullcontext() if each.tracking else batchnorm.untracked(each.slots.network))
        return function(*args, **kwargs)


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
    fill(network, parameters)
    for part in network.modules():
        for hook in part._forward_pre_hooks.values() if parameters else ():
            if isinstance(hook, (WeightNorm, BasePruningMethod)):  # which compute their weights before each call
                hook(part, ())
        if isinstance(part, nn.RNNBase):
            _compat.keep_weights(part)
    return network
