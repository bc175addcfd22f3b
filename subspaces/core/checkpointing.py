"""Activation checkpointing inside a network: what is computed again in a backward pass gets its weights again.

`torch.utils.checkpoint` keeps the inputs of a part of a network and runs it once more when gradients are computed.
By then a family has taken the weights of the point out of the network, so a part that was checkpointed while a family
ran is remembered together with them.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from contextvars import ContextVar, Token
from functools import partial
from typing import Any, NamedTuple

import torch.utils.checkpoint
from torch import Tensor, nn
from torch.func import functional_call

from subspaces.core import batchnorm, recurrent


class Filled(NamedTuple):
    """A network that runs."""

    network: nn.Module
    weights: Mapping[str, Tensor]
    tracking: bool
    """Whether its batch norms keep statistics."""


_running: ContextVar[tuple[Filled, ...]] = ContextVar("_running", default=())
"""The networks that run in this thread, the outermost first."""
Running = Token[tuple[Filled, ...]]


def remember(network: nn.Module, weights: Mapping[str, Tensor], tracking: bool) -> Running:
    """Let checkpointed parts of a network that runs have these weights whenever they run again, until `forget`."""
    return _running.set((*_running.get(), Filled(network, weights, tracking)))


def forget(running: Running) -> None:
    """End what `remember` began."""
    _running.reset(running)


def runs_with(weights: Mapping[str, Tensor]) -> bool:
    """Say whether the innermost network that runs has these weights."""
    running = _running.get()
    return bool(running) and running[-1].weights is weights


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
    token = remember(network, weights, tracking)
    try:
        with nullcontext() if tracking else batchnorm.untracked(network):
            return functional_call(_Around(network), named, (inner, args, kwargs))
    finally:
        forget(token)
        recurrent.forget(recurrent.recurrent(network))


def _install() -> None:
    """Make torch's checkpoints tell us what they will run again; outside of a family they are as before."""
    module: Any = torch.utils.checkpoint
    kept, reentrant = module._checkpoint_without_reentrant_generator, module.CheckpointFunction.apply

    def keep(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        running = _running.get()
        return kept(partial(_again, function, running) if running else function, *args, **kwargs)

    def refuse(*args: Any) -> Any:
        if _running.get():
            raise RuntimeError(
                "the network checkpoints with use_reentrant=True, which cannot give the gradient of a family: pass "
                "use_reentrant=False (gradient_checkpointing_kwargs={'use_reentrant': False} with Hugging Face)"
            )
        return reentrant(*args)

    module._checkpoint_without_reentrant_generator = keep
    module.CheckpointFunction.apply = refuse


_install()
