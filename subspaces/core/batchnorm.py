"""Running statistics of batch and instance norms, for a network that was never trained at exactly its weights."""

import copy
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import chain, islice
from operator import length_hint
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from subspaces.core import checks, distributed, nested, randomness
from subspaces.core._compat import InstanceNorm, NormBase
from subspaces.core.alpha import Alpha
from subspaces.errors import ArgumentError

Module = TypeVar("Module", bound=nn.Module)
Forward = Callable[[Any, Any], Any]
ONE_VALUE = "Expected more than 1 value per channel"  # how torch's error for a batch norm with one value begins
_NO_EXAMPLES = (
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
    norm that the pass does not reach keeps its statistics. Of a distributed family each rank runs its own batches, and
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

    Example:
        >>> net = recalibrate(family.midpoint(), train_loader, batches=100).eval()
    """
    for name, value in (("outside", outside), ("progress", progress), ("finite", finite)):
        checks.flag(name, value)
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"recalibrate got {checks.shown(module)}: expected a network, an Ensemble or a Subspace")
    inner: Any = distributed.unwrapped(module)
    family = inner if distributed.is_family(inner) else None
    if family is None and alpha is not None:
        raise ArgumentError(f"alpha={alpha!r}: only a Subspace has points, this is a {type(module).__name__}")
    if family is not None:
        alpha = family.shape.midpoint() if alpha is None else alpha
        family.coefficients(alpha, outside)  # a bad alpha is an error before anything is reset
    checks.batches("loader", loader, again=False)
    if batches is not None:
        checks.whole("batches", batches, 1, sys.maxsize, beside=", or None for the whole loader")
    if forward is not None:
        checks.function("forward", forward, "a function of (module, batch)")
    if not tracked(module):
        return module
    if family is not None and family.mesh is not None:
        network = family.at(alpha, outside)  # gathered once, and ranks may have different numbers of batches
        progress = progress and distributed.is_first(family.mesh)
        recalibrate(network, loader, batches=batches, progress=progress, forward=forward, finite=False)
        _average_over_ranks(family, network, finite)
    else:
        call = module if family is None else partial(module, alpha=alpha, outside=outside)
        with _restoring(module, family), closing(_batches(loader, batches, progress)) as stream:
            _recompute(module, (lambda batch: _run(module, call, forward, batch)), stream, finite)
    if family is not None:
        family.keep_statistics()
    return module


def renew(
    network: nn.Module, statistics: Iterable[Any], forward: Forward, *, batches: int | None = None, seed: int = 0
) -> None:
    """Make the batch-norm statistics of a network whose weights were replaced, and leave everything else as it was.

    As `recalibrate`, with the same batches and random numbers (of loaders, of dropout) each time, so that points can
    be compared: the loader goes back to where it was. Other buffers, which a pass in train mode may change, are
    restored, and statistics need not be finite.
    """
    norms = tracked(network)
    if not norms:
        return
    others = (part for part in network.modules() if not isinstance(part, NormBase))
    kept = [(each, each.clone()) for part in others for each in part.buffers(recurse=False)]
    loader: Any = statistics
    with ExitStack() as stack:
        if isinstance(generator := getattr(loader, "generator", None), torch.Generator):
            stack.callback(generator.set_state, generator.get_state())
        elif hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict"):
            stack.callback(loader.load_state_dict, copy.deepcopy(loader.state_dict()))
        stack.enter_context(
            randomness.seeded(seed, next(each.device for norm in norms.values() for each in norm.buffers()))
        )
        recalibrate(network, loader, batches=batches, forward=forward, finite=False)
    for buffer, value in kept:
        buffer.copy_(value)


@torch.no_grad()
def _recompute(module: nn.Module, run: Callable[[Any], None], batches: Iterable[Any], finite: bool) -> None:
    """Let the statistics become the plain average over passes in train mode."""
    norms = tracked(module)
    module.train()
    for norm in norms.values():
        norm.reset_running_stats()
        norm.momentum = 1.0 if isinstance(norm, InstanceNorm) else None
    with _counting(norms.values()) as emptied:
        for batch in batches:
            run(batch)
    if emptied and not any(norm.num_batches_tracked for norm in norms.values()):
        raise ArgumentError(_NO_EXAMPLES)
    if finite:
        _check_finite(norms)


@contextmanager
def _counting(norms: Iterable[NormBase]) -> Iterator[list[nn.Module]]:
    """Count no empty batches, which have no mean and variance; yield the batch norms that got some.

    Instance norms, which by themselves do not count, do so too, and average as batch norms do with momentum=None.
    """
    emptied: list[nn.Module] = []

    def count(norm: Any, inputs: Any, output: Tensor) -> None:
        if not norm.training or norm.num_batches_tracked is None:
            return
        if not isinstance(norm, InstanceNorm):
            if not output.numel():
                norm.num_batches_tracked.sub_(1)
                emptied.append(norm)
        elif output.numel():
            norm.num_batches_tracked.add_(1)
            norm.momentum = 1 / (1 + round(1 / (norm.momentum or 1)))

    hooks = [norm.register_forward_hook(count) for norm in norms]
    try:
        yield emptied
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def _average_over_ranks(family: Any, network: nn.Module, finite: bool) -> None:
    """Give a distributed family the statistics of a network that each rank has run on its own batches."""
    made = tracked(network)
    distributed.average_statistics(made.values(), family.mesh, counting=True)
    if finite:
        _check_finite(made)
    for name, norm in tracked(family.template).items():
        for buffer, value in zip(norm.buffers(), made[name].buffers(), strict=True):
            buffer.copy_(value)


def _check_finite(norms: Mapping[str, NormBase]) -> None:
    """Refuse statistics that are not finite; the device is waited for once."""
    pairs = [(name, value) for name, norm in norms.items() for value in (norm.running_mean, norm.running_var)]
    values = [(name, value) for name, value in pairs if value is not None]
    finite = torch.stack([value.isfinite().all().to(values[0][1].device) for _, value in values]).tolist()
    if not all(finite):
        raise StatisticsError(
            f"the batch-norm statistics of {values[finite.index(False)][0]!r} are not finite: the batches or the "
            "network's weights hold NaN or infinity; check them, the network's own statistics are as before"
        )


@contextmanager
def _restoring(module: nn.Module, family: Any) -> Iterator[None]:
    """Restore modes, momenta and settings, and statistics that were not renewed; after an error, all buffers."""
    norms = tracked(module).values()
    modes = {part: part.training for part in module.modules()}
    momenta = {norm: norm.momentum for norm in norms}
    every = getattr(family, "statistics_every", None)
    buffers = {buffer: buffer.clone() for buffer in module.buffers()}
    old = list(buffers)
    try:
        if family is not None:
            family.statistics_every = None  # else it would keep those of its midpoint alone
        yield
        old = [buffer for norm in norms if norm.num_batches_tracked == 0 for buffer in norm.buffers()]
    finally:
        with torch.no_grad():
            for buffer in old:
                buffer.copy_(buffers[buffer])
        for norm, momentum in momenta.items():
            norm.momentum = momentum
        for part, mode in modes.items():
            part.training = mode
        if family is not None:
            family.statistics_every = every


def _run(module: nn.Module, call: Callable[..., Any], forward: Forward | None, batch: Any) -> None:
    """Run a module on a batch of a loader, on the module's device."""
    device = next((each.device for each in chain(module.parameters(), module.buffers())), torch.device("cpu"))
    try:
        (forward or _call)(call, nested.moved(batch, device))
    except ValueError as error:
        if not str(error).startswith(ONE_VALUE):
            raise
        raise ArgumentError(
            f"recalibrate got a batch with one value per channel, which has no variance ({error}): use batches of "
            "another size, or leave the last one out (drop_last=True)"
        ) from None


def _call(call: Callable[..., Any], batch: Any) -> None:
    """Pass a network the inputs of a batch."""
    if isinstance(batch, (tuple, list)) and not batch:
        raise ArgumentError(
            f"recalibrate got the batch {batch!r}: expected inputs, (inputs, target), or a dict of inputs"
        )
    named = isinstance(batch, Mapping)
    try:
        if named:
            call(**batch)
        else:
            call(batch[0] if isinstance(batch, (tuple, list)) else batch)
    except TypeError as error:
        passed = "the items of a batch by their names" if named else "the first item of a batch"
        how = "net(batch['x'], batch['mask'])" if named else "net(batch[0], batch[1])"
        raise ArgumentError(
            f"{error}. recalibrate passed the network {passed}; if it takes other inputs, say how to run it: "
            f"recalibrate(net, loader, forward=lambda net, batch: {how})"
        ) from error


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
        raise ArgumentError(_NO_EXAMPLES)


# The norms of a network


def tracked(network: nn.Module) -> dict[str, NormBase]:
    """Return the batch and instance norms that keep running statistics, by name."""
    parts = network.named_modules()
    return {name: part for name, part in parts if isinstance(part, NormBase) and part.track_running_stats}


def check_given(network: nn.Module, statistics: object) -> None:
    """Refuse a network with batch norm where `statistics=`, from which those of its points are made, is None."""
    if statistics is None and (norms := tracked(network)):
        raise ArgumentError(
            f"the network has {kind(norms)} norm ({next(iter(norms))}), whose statistics belong to no point "
            "of a family: pass statistics=, the training loader"
        )


def kind(norms: Mapping[str, NormBase]) -> str:
    """Return "batch", or "instance" if there are no other norms."""
    return "instance" if all(isinstance(norm, InstanceNorm) for norm in norms.values()) else "batch"


def batches(network: nn.Module) -> Tensor | None:
    """Return how many batches the statistics of a network have seen, over all its norms; None if it keeps none.

    Instance norms do not count: theirs is the number that `recalibrate` saw.
    """
    counts = [norm.num_batches_tracked for norm in tracked(network).values() if norm.num_batches_tracked is not None]
    return torch.stack([count.to(counts[0].device) for count in counts]).sum() if counts else None


@contextmanager
def untracked(network: nn.Module) -> Iterator[None]:
    """Let a network run in train mode without a change of its statistics."""
    norms = list(tracked(network).values())
    kept: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for norm in norms:
        norm.track_running_stats = False
        if isinstance(norm, InstanceNorm) and norm.training:  # it updates its buffers whatever that flag is
            kept.append((norm._buffers, {name: norm._buffers[name] for name in ("running_mean", "running_var")}))
            norm._buffers.update(running_mean=None, running_var=None)
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
        for buffers, values in kept:
            buffers.update(values)


@contextmanager
def counted_as(network: nn.Module, batches: int) -> Iterator[None]:
    """Let one batch count as several in running statistics, with momentum 1 - (1 - momentum)^batches.

    Statistics of every tenth batch then follow the weights as quickly as those of every batch.
    """
    momenta = {norm: norm.momentum for norm in tracked(network).values()}
    for norm, momentum in momenta.items():
        if momentum is not None:  # else all batches weigh the same
            norm.momentum = 1 - (1 - momentum) ** batches
    try:
        with _counting(norm for norm in momenta if not isinstance(norm, InstanceNorm)):
            yield
    finally:
        for norm, momentum in momenta.items():
            norm.momentum = momentum


def _call_directly(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


class Uncompiled:
    """Calls functions outside of `torch.compile`, once `begin` was called: importing the compiler takes a second."""

    call: Callable[..., Any] = staticmethod(_call_directly)

    def begin(self) -> None:
        """Keep functions that are called from here on out of the compiled program."""
        if self.call is _call_directly:
            self.call = torch.compiler.disable(_call_directly)


uncompiled = Uncompiled()
