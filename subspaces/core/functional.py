"""The network without its weights: filled with those of a point, run, and copied.

`torch.utils.checkpoint` runs a part of a network again when gradients are computed. By then the weights of the point
are no longer in the network, so a part that is checkpointed is remembered together with them.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar, Token
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from subspaces.core import _compat, batchnorm, checks
from subspaces.errors import ArgumentError

_running: ContextVar[tuple["Filled", ...]] = ContextVar("_running", default=())
"""The networks that run in this thread, the outermost first."""


class Slots:
    """The places of named tensors in a network, looked up again only when its modules were exchanged.

    Args:
        holder: holds the network as "template".
        names: of parameters and buffers; of a module that has several names the first one counts.
    """

    def __init__(self, holder: Mapping[str, Any], names: Iterable[str]) -> None:
        owners = dict(holder["template"].named_modules())
        self.holder, self.names = holder, tuple(name for name in names if name.rpartition(".")[0] in owners)
        self._slots: list[tuple[dict[str, Any], str]] = []
        self._modules: list[tuple[Mapping[str, Any], str, Any]] = []  # on the way to them
        self._recurrent: list[nn.RNNBase] = []

    def _find(self) -> None:
        _compat.watch_checkpoints(_remembering, _refuse_reentrant)
        modules: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self._slots = []
        for name in self.names:
            *path, key = name.split(".")
            children, part = self.holder, self.holder["template"]
            for child in ("template", *path):
                if child not in children:
                    raise ArgumentError(f"the network of a family has no {name!r} any more: expected its parameters")
                part = children[child]
                modules[id(children), child] = children, child, part
                children = part._modules
            self._slots.append((part._parameters if key in part._parameters else part._buffers, key))
        self._modules = list(modules.values())
        self._recurrent = [part for _, _, part in self._modules if isinstance(part, nn.RNNBase)]

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

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """Take the weights out of a network for as long as this lasts."""
        before = self.put([None] * len(self.names))
        try:
            yield
        finally:
            self.put(before)


class Filled:
    """A context in which a network has the given weights; `tracking`: whether its norms keep statistics there."""

    def __init__(self, slots: Slots, weights: Mapping[str, Tensor], tracking: bool = True) -> None:
        self.slots, self.weights, self.tracking = slots, weights, tracking

    def __enter__(self) -> None:
        self._norms: Any = None if self.tracking else batchnorm.untracked(self.slots.holder["template"])
        if self._norms is not None:
            self._norms.__enter__()
        self._before = self.slots.put(self.weights.values())
        self._token: Token[Any] = _running.set((*_running.get(), self))

    def __exit__(self, *error: Any) -> None:
        _running.reset(self._token)
        self.slots.put(self._before)
        if self._norms is not None:
            self._norms.__exit__(*error)


def filled(slots: Slots, weights: Mapping[str, Tensor]) -> AbstractContextManager[Any]:
    """Return a context in which a network has the given weights, also for a compiler."""
    if not torch.compiler.is_compiling():
        return Filled(slots, weights)
    return _compat.reparametrized(slots.holder["template"], dict(weights))


@contextmanager
def unwritten(weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Raise in the end if one of these weights was changed in place, which would be lost."""
    counted = [] if torch.compiler.is_compiling() else [each for each in weights.values() if not each.is_inference()]
    before = [each._version for each in counted]
    yield
    if before != [each._version for each in counted]:
        raise ArgumentError(
            "the block of family.point() wrote into weights in place, which is lost, as they are computed from the "
            "vertices: write into family.vertex(index)"
        )


def call(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    tracking: bool = True,
    slots: Slots | None = None,
) -> Any:
    """Run a network with the given weights, and leave none of them behind; `slots` are theirs, if they are known.

    This is `functional_call` without its look at all parameters and buffers, a tenth of a small step.
    """
    if slots is None:
        slots = Slots({"template": network}, weights)
        weights = {name: weights[name] for name in slots.names}
    if not torch.compiler.is_compiling():
        with Filled(slots, weights, tracking):
            return network(*args, **kwargs)
    with nullcontext() if tracking else batchnorm.untracked(network):
        return functional_call(network, dict(weights), args, dict(kwargs))


def _again(function: Callable[..., Any], running: tuple[Filled, ...], *args: Any, **kwargs: Any) -> Any:
    """Call a function while networks have the weights that they had."""
    with ExitStack() as stack:
        for each in running:  # the innermost fills last, where one network is there twice
            stack.enter_context(Filled(each.slots, each.weights, each.tracking))
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


def fill(network: nn.Module, parameters: Mapping[str, nn.Parameter | None]) -> None:
    """Put the named parameters (None: nothing) into their places in `network`."""
    for name, parameter in parameters.items():
        owner, _, key = name.rpartition(".")
        setattr(network.get_submodule(owner), key, parameter)


def copied(network: nn.Module, known: Mapping[int, Any] | None = None) -> nn.Module:
    """Return a deep copy of a network; `known` maps the `id` of what is not copied to what stands in its place.

    Results of the last call that a part keeps, such as a loss, are copied without their graph, as torch refuses to.
    """
    kept = _compat.pytree.tree_leaves([vars(part) for part in network.modules()])
    results = {id(each): each.detach().clone() for each in kept if isinstance(each, Tensor) and not each.is_leaf}
    return copy.deepcopy(network, {**results, **(known or {})})


def copy_with(template: nn.Module, parameters: Mapping[str, nn.Parameter], share: bool = False) -> nn.Module:
    """Return a copy of the network with the given parameters, and with `share` the template's own frozen ones."""
    checks.flag("share", share)
    network = copied(template, {id(frozen): frozen for frozen in template.parameters()} if share else None)
    fill(network, parameters)
    for part in network.modules():
        if isinstance(part, nn.RNNBase):
            part._init_flat_weights()  # its second list of weights
    return network
