"""Batch-norm statistics for a network that was never trained at exactly its weights."""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from operator import length_hint
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm

from subspaces.core import checks, functional, nested, norms, sharding
from subspaces.core.alpha import Alpha
from subspaces.core.norms import KeepingStatistics
from subspaces.errors import ArgumentError

Module = TypeVar("Module", bound=nn.Module)
Forward = Callable[[Any, Any], Any]
ONE_VALUE = "Expected more than 1 value per channel"
"""How torch begins its refusal of a batch norm in train mode that gets one value."""

NOTHING = (
    "recalibrate got a loader without batches, or one with no examples in them: expected training batches, from which "
    "the batch-norm statistics are made"
)


class StatisticsError(ArgumentError):
    """Statistics that are not finite."""


def recalibrate(
    module: Module,
    loader: Iterable[Any],
    *,
    alpha: Alpha | None = None,
    outside: bool = False,
    batches: int | None = None,
    progress: bool = False,
    forward: Forward | None = None,
    finite: bool = True,
) -> Module:
    """Recompute the running statistics of every batch and instance norm from data, in place; return the module.

    The statistics are reset and become the plain average over the batches of one pass in train mode,
    without autograd, as for stochastic weight averaging; empty batches do not count. Modes and momenta are restored
    whatever happens, and after an error all buffers too. Without such norms nothing is run, and a
    norm that the pass does not reach keeps what it has. Of a distributed family each rank runs its own batches, and
    the statistics are the average over those of all ranks.

    Args:
        module: a network, an `Ensemble` (each member gets its own statistics), or a family.
        loader: yields inputs, (input, target) pairs, or dicts of keyword arguments.
        alpha: for a family, the point whose statistics it shall hold, by default the midpoint. For
            several points at once, recalibrate `family.ensemble(points)`.
        outside: allow an alpha outside the domain.
        batches: use at most this many batches.
        progress: show a progress bar.
        forward: runs the module on a batch, `forward(module, batch)`, where the default does not fit
            your batches, such as `lambda net, batch: net(batch.x, batch.edge_index)`; of a family it gets the point.
        finite: refuse statistics that are not finite, such as those of images with NaN.
    """
    for name, value in (("outside", outside), ("progress", progress), ("finite", finite)):
        checks.flag(name, value)
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"recalibrate got {checks.shown(module)}: expected a network, an Ensemble or a Subspace")
    call: Callable[..., Any] = module
    family = _family(module)
    if family is not None:
        alpha = family.shape.midpoint() if alpha is None else alpha
        family.coefficients(alpha, outside)  # a bad alpha is an error before anything is reset
        call = partial(module, alpha=alpha, outside=outside)
    elif alpha is not None:
        raise ArgumentError(f"alpha={alpha!r}: only a Subspace has points, this is a {type(module).__name__}")
    checks.batches("loader", loader, again=False)
    if batches is not None:
        checks.whole("batches", batches, 1, sys.maxsize, beside=", or None for the whole loader")
    if forward is not None:
        checks.function("forward", forward, "a function of (module, batch)")
    if not norms.tracked(module):
        return module
    if family is not None and family.mesh is not None:
        network = family.at(alpha, outside)  # gathered once, and ranks may have different numbers of batches
        progress = progress and sharding.is_first(family.mesh)
        recalibrate(network, loader, batches=batches, progress=progress, forward=forward, finite=False)
        _share(family, network, finite)
        return module
    found = {name: part for name, part in module.named_modules() if isinstance(part, _NormBase)}
    runner = _Runner(module, call, forward or _run)
    with (
        _restoring(module, list(found.values())),
        closing(_batches(loader, batches, progress)) as stream,
        norms.discounting_empty(module) as emptied,
    ):
        _average(module, found.values(), map(runner, stream))
        if emptied and not any(norm.num_batches_tracked for norm in found.values()):
            raise ArgumentError(NOTHING)
        if finite:
            _check_finite(found)
    if family is not None:
        family.keep_statistics()
    return module


@torch.no_grad()
def _average(module: nn.Module, found: Iterable[_NormBase], passes: Iterable[Any]) -> None:
    """Let the statistics become the plain average over passes in train mode."""
    hooks = [norm.register_forward_pre_hook(_Counting()) for norm in found if isinstance(norm, _InstanceNorm)]
    try:
        module.train()
        for norm in found:
            norm.reset_running_stats()
            norm.momentum = None
        for _ in passes:
            pass
    finally:
        for hook in hooks:
            hook.remove()


class _Counting:
    """Makes an instance norm average as batch norm does without a momentum: it neither counts nor knows of that."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, norm: Any, inputs: Any) -> None:
        if norm.training and norm.track_running_stats and inputs[0].numel():
            self.count += 1
            norm.num_batches_tracked += 1
            norm.momentum = 1 / self.count


def _family(module: nn.Module) -> Any:
    """Return the family that a module is, or that was wrapped; None for any other network."""
    inner = functional.unwrapped(module)
    return inner if isinstance(inner, KeepingStatistics) else None


@torch.no_grad()
def _share(family: Any, network: nn.Module, finite: bool) -> None:
    """Give a distributed family the statistics of a network that each rank has run on its own batches."""
    made = norms.tracked(network)
    sharding.average_statistics(made.values(), family.mesh, counting=True)
    if finite:
        _check_finite(made)
    for name, norm in norms.tracked(family.template).items():
        for buffer, value in zip(norm.buffers(), made[name].buffers(), strict=True):
            buffer.copy_(value)
    family.keep_statistics()


def _check_finite(found: Mapping[str, _NormBase]) -> None:
    """Refuse statistics that are not finite; the device is waited for once."""
    statistics = [(name, value) for name, norm in found.items() for value in (norm.running_mean, norm.running_var)]
    tracked = [(name, value) for name, value in statistics if value is not None]
    good = torch.stack([value.isfinite().all().to(tracked[0][1].device) for _, value in tracked]).tolist()
    if not all(good):
        name = tracked[good.index(False)][0]
        raise StatisticsError(
            f"the batch-norm statistics of {name!r} are not finite: the batches or the network's weights hold NaN or "
            "infinity; check them, the network's own statistics are as before"
        )


@contextmanager
def _restoring(module: nn.Module, found: list[_NormBase]) -> Iterator[None]:
    """Restore modes, momenta and settings, and statistics that were not renewed: after an error, all buffers."""
    modes = {part: part.training for part in module.modules()}
    momenta = {norm: norm.momentum for norm in found}
    family = _family(module)
    every = getattr(family, "statistics_every", None)
    buffers = {buffer: buffer.clone() for buffer in module.buffers()}
    old = list(buffers)
    try:
        if family is not None:
            family.statistics_every = None  # else it would keep those of its midpoint alone
        yield
        old = [buffer for norm in found if norm.num_batches_tracked == 0 for buffer in norm.buffers()]
    finally:
        for buffer in old:
            buffer.copy_(buffers[buffer])
        for norm, momentum in momenta.items():
            norm.momentum = momentum
        for part, mode in modes.items():
            part.training = mode
        if family is not None:
            family.statistics_every = every


def _run(call: Callable[..., Any], batch: Any) -> None:
    if isinstance(batch, (tuple, list)) and not batch:
        raise ArgumentError(
            f"recalibrate got the batch {batch!r}: expected inputs, (inputs, target), or a dict of inputs"
        )
    try:
        if isinstance(batch, Mapping):
            call(**batch)
        else:
            call(batch[0] if isinstance(batch, (tuple, list)) else batch)
    except TypeError as error:
        if isinstance(batch, Mapping):
            held, how = "the items of a batch by their names", "net(batch['x'], batch['mask'])"
        else:
            held, how = "the first item of a batch", "net(batch[0], batch[1])"
        raise ArgumentError(
            f"{error}. recalibrate passed the network {held}; if it takes other inputs, say how to run it: "
            f"recalibrate(net, loader, forward=lambda net, batch: {how})"
        ) from error


class _Runner(nn.Module):
    """Runs a module on one batch of a loader, on the module's device."""

    def __init__(self, module: nn.Module, call: Callable[..., Any], forward: Forward) -> None:
        super().__init__()
        self.module = module
        self.call = call
        self.run = forward
        self.device = next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))

    def forward(self, batch: Any) -> None:
        try:
            self.run(self.call, nested.moved(batch, self.device))
        except ValueError as error:
            if not str(error).startswith(ONE_VALUE):
                raise
            raise ArgumentError(
                f"recalibrate got a batch with one value per channel, which has no variance ({error}): use batches of "
                "another size, or leave the last one out (drop_last=True)"
            ) from None


def _batches(loader: Iterable[Any], limit: int | None, progress: bool) -> Generator[Any, None, None]:
    """Yield at most `limit` batches, with a progress bar on request; none at all is an error."""
    limited: Iterable[Any] = islice((batch for batch in loader if not nested.is_empty(batch)), limit)
    if progress:
        from rich.progress import track

        length = length_hint(loader) or limit
        total = length if limit is None or length is None else min(length, limit)
        limited = track(limited, description="batch-norm statistics", total=total)
    empty = True
    for batch in limited:
        empty = False
        yield batch
    if empty:
        raise ArgumentError(NOTHING)
