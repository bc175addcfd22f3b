"""Batch-norm statistics for weights that were never trained with them: made anew, kept fresh, or known to be stale."""

import copy
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from subspaces.core import _compat, checks, distributed, nested, randomness
from subspaces.core._compat import BatchNorm
from subspaces.core.alpha import Alpha
from subspaces.core.shapes import Shape
from subspaces.errors import ArgumentError

Module = TypeVar("Module", bound=nn.Module)
Forward = Callable[[Any, Any], Any]
STALE = (
    "the family's batch-norm statistics come from training at random points and belong to none of them: "
    "its predictions in eval mode are noise. Before you evaluate it, write subspaces.recalibrate(family, "
    "train_loader), or make it with Subspace(…, statistics_every=10), which keeps those of the midpoint fresh"
)
RANDOM = (
    "the family predicts without gradients in train mode, so each call is at another random point: call family.eval() "
    "for the midpoint, or pass alpha= (alpha=family.sample() if a random point is meant)"
)


class StatisticsError(ArgumentError):
    """Statistics that are not finite."""


class StatisticsWarning(UserWarning):
    """A family in eval mode whose running statistics belong to none of its points."""


class RandomPointWarning(UserWarning):
    """A family that predicts at random points, because it is in train mode."""


@torch.no_grad()
def recalibrate(
    module: Module,
    loader: Iterable[Any],
    *,
    alpha: Alpha | None = None,
    batches: int | None = None,
    forward: Forward | None = None,
    finite: bool = True,
) -> Module:
    """Recompute the running statistics of every batch norm from data, in place; return the module.

    They become the plain average over the batches of one pass in train mode, as for stochastic weight averaging. A norm
    that the pass does not reach keeps its own, and after an error everything is as before. Of a distributed family each
    rank runs batches of its own, and those of all are averaged.

    Args:
        module: a network, an `Ensemble` (each member gets its own statistics), or a family.
        loader: yields inputs, (input, target) pairs, or dicts of keyword arguments.
        alpha: for a family, the point whose statistics it shall hold, by default the midpoint.
        batches: use at most this many batches.
        forward: runs the network on a batch where the default does not fit, such as
            `lambda net, batch: net(batch.x, batch.edge_index)`.
        finite: refuse statistics that are not finite, such as those of images with NaN.

    Example:
        >>> net = ss.recalibrate(family.midpoint(), train_loader, batches=100).eval()
    """
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"recalibrate got {checks.shown(module)}: expected a network, an Ensemble or a Subspace")
    inner: Any = distributed.unwrapped(module)
    family = inner if distributed.is_family(inner) else None
    if family is None and alpha is not None:
        raise ArgumentError(f"alpha={alpha!r}: only a Subspace has points, this is a {type(module).__name__}")
    checks.batches("loader", loader, again=False)
    if batches is not None:
        checks.whole("batches", batches, 1, sys.maxsize, beside=", or None for the whole loader")
    check_norms(module)
    if not tracked(module):
        return module
    network, mesh = module, None
    if family is not None:
        network, mesh = family.at(family.shape.midpoint() if alpha is None else alpha, share=True), family.mesh
    norms, count = tracked(network), 0
    stream = islice((batch for batch in loader if not nested.is_empty(batch)), batches)
    with _restoring(network, norms.values()):
        network.train()
        for norm in norms.values():
            norm.reset_running_stats()
            norm.momentum = None
        device = next(each.device for each in chain(network.parameters(), network.buffers()))
        for count, batch in enumerate(stream, 1):  # noqa: B007
            _run(network, nested.moved(batch, device), forward or _call)
        if not count:
            raise ArgumentError("recalibrate got a loader without batches, or with no examples: expected training data")
        distributed.average_statistics(norms.values(), mesh, counting=True)
        for name, norm in norms.items() if finite else ():
            if not all(bool(buffer.isfinite().all()) for buffer in norm.buffers()):
                raise StatisticsError(
                    f"the batch-norm statistics of {name!r} are not finite: the batches or the network's weights hold "
                    "NaN or infinity; check them, the network's own statistics are as before"
                )
    if family is not None:
        for norm, made in zip(tracked(family.template).values(), norms.values(), strict=True):
            _compat.copy_all(list(norm.buffers()), list(made.buffers()))
        family.keep_statistics()
    return module


def renew(
    network: nn.Module, statistics: Iterable[Any], forward: Forward, *, batches: int | None = None, seed: int = 0
) -> None:
    """Recalibrate a network whose weights were replaced, and leave everything else as it was.

    Batches and random numbers (of loaders, of dropout) are the same each time, so that points can be compared.
    """
    if not (norms := tracked(network)):
        return
    own = {id(buffer) for norm in norms.values() for buffer in norm.buffers()}
    kept = [(each, each.clone()) for each in network.buffers() if id(each) not in own]
    loader: Any = statistics
    with ExitStack() as stack:
        if isinstance(generator := getattr(loader, "generator", None), torch.Generator):
            stack.callback(generator.set_state, generator.get_state())
        elif hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict"):
            stack.callback(loader.load_state_dict, copy.deepcopy(loader.state_dict()))
        device = next(each.device for norm in norms.values() for each in norm.buffers())
        stack.enter_context(randomness.seeded(seed, device))
        recalibrate(network, loader, batches=batches, forward=forward, finite=False)
    for buffer, value in kept:
        buffer.copy_(value)


@contextmanager
def _restoring(network: nn.Module, norms: Iterable[BatchNorm]) -> Iterator[None]:
    """Restore modes, momenta, and statistics that were not renewed; after an error, all buffers."""
    modes = [(part, part.training) for part in network.modules()]
    buffers = {buffer: buffer.clone() for buffer in network.buffers()}
    old = list(buffers)
    try:
        with _momenta(norms):
            yield
        old = [buffer for norm in norms if norm.num_batches_tracked == 0 for buffer in norm.buffers()]
    finally:
        for buffer in old:
            buffer.copy_(buffers[buffer])
        for part, mode in modes:
            part.training = mode


@contextmanager
def _momenta(norms: Iterable[BatchNorm]) -> Iterator[None]:
    """Restore momenta at the end, and count no empty batches, which have no mean and variance."""

    def count(norm: Any, inputs: Any, output: Tensor) -> None:
        if norm.training and norm.num_batches_tracked is not None and not output.numel():
            norm.num_batches_tracked.sub_(1)

    before = [(norm, norm.momentum, norm.register_forward_hook(count)) for norm in norms]
    try:
        yield
    finally:
        for norm, momentum, hook in before:
            norm.momentum = momentum
            hook.remove()


def _run(network: nn.Module, batch: Any, forward: Forward) -> None:
    """Run a network in train mode on a batch, or say why one example is too few."""
    try:
        forward(network, batch)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ArgumentError(
            f"recalibrate got a batch with one value per channel, which has no variance ({error}): leave the last "
            "batch out (drop_last=True), or use batches of another size"
        ) from None


def _call(network: nn.Module, batch: Any) -> None:
    """Pass a network the first item of a batch, or those of a dict by their names."""
    named = dict(batch) if isinstance(batch, Mapping) else {}
    args = () if named else tuple(batch[:1]) if isinstance(batch, (tuple, list)) else (batch,)
    nested.run(network, args, named, lambda: network(*args, **named))


# The norms of a network


def tracked(network: nn.Module) -> dict[str, BatchNorm]:
    """Return the batch norms that keep running statistics, by name."""
    parts = network.named_modules()
    return {name: part for name, part in parts if isinstance(part, BatchNorm) and part.track_running_stats}


def check_given(network: nn.Module, statistics: object) -> None:
    """Refuse a network with batch norm where `statistics=`, from which those of its points are made, is None."""
    check_norms(network)
    if statistics is None and (norms := tracked(network)):
        raise ArgumentError(
            f"the network has batch norm ({next(iter(norms))}), whose statistics belong to no point "
            "of a family: pass statistics=, the training loader"
        )


def check_norms(network: nn.Module) -> None:
    """Refuse running statistics that cannot be made anew."""
    for name, part in network.named_modules():
        if isinstance(part, (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)) and part.track_running_stats:
            what = f"{name or 'the network'} is an {type(part).__name__} with running statistics"
            raise ArgumentError(f"{what}, which cannot be made anew: make it with track_running_stats=False")


def batches(network: nn.Module) -> Tensor | None:
    """Return how many batches the statistics of a network have seen, over all its norms; None if it keeps none."""
    counts = [norm.num_batches_tracked for norm in tracked(network).values() if norm.num_batches_tracked is not None]
    return torch.stack([count.to(counts[0].device) for count in counts]).sum() if counts else None


@contextmanager
def untracked(network: nn.Module) -> Iterator[None]:
    """Let a network run in train mode without a change of its statistics."""
    norms = tracked(network).values()
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


@contextmanager
def counted_as(network: nn.Module, batches: int) -> Iterator[None]:
    """Let one batch count as several in running statistics, with momentum 1 - (1 - momentum)^batches."""
    norms = tracked(network).values()
    with _momenta(norms):
        for norm in norms:
            if norm.momentum is not None:  # else all batches weigh the same
                norm.momentum = 1 - (1 - norm.momentum) ** batches
        yield


class KeepingStatistics(nn.Module):
    """Tracks whether the running statistics of a family are those of one point, and warns if not.

    `calibrated` is how many batches they had seen when they were; a step of training adds one.
    """

    template: nn.Module
    shape: Shape
    calibrated: Tensor | None
    _asked = False  # whether statistics were checked since the last change of mode
    _warned = False  # whether a prediction at a random point was

    def begin_statistics(self, known: bool) -> None:
        """Begin with the network's statistics, which are those of a point if `known`, or before any batch."""
        seen = batches(self.template)
        self.register_buffer("calibrated", seen)
        self.keep_statistics(known or not seen)

    def keep_statistics(self, known: bool = True) -> None:
        """Note that the batch-norm statistics are now those of one point, or of no known one."""
        seen, self._asked = batches(self.template), False
        if seen is not None and self.calibrated is not None:
            self.calibrated.copy_(seen if known else torch.full_like(seen, -1))

    @property
    def is_calibrated(self) -> bool:
        """Whether the batch-norm statistics are those of one point; also where there are none."""
        seen = batches(self.template)
        return seen is None or self.calibrated is None or bool(seen == self.calibrated)

    def check_call(self, alpha: Any, depth: int = 4) -> None:
        """Warn of predictions with statistics of no point, or in train mode at random points."""
        if torch.compiler.is_compiling() or _compat.is_tracing():
            return
        if self.training:
            if alpha is None and self.shape.vertices > 1 and not self._warned:
                self._warned = True
                warnings.warn(RANDOM, RandomPointWarning, stacklevel=depth + 1)
        elif not self._asked:
            self._asked = True
            capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()  # nothing can be read
            if not capturing and not self.is_calibrated:
                warnings.warn(STALE, StatisticsWarning, stacklevel=depth + 1)

    def train(self, mode: bool = True) -> Self:
        self._asked = False
        return super().train(mode)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self._asked = False
        super()._load_from_state_dict(state_dict, prefix, *args)
