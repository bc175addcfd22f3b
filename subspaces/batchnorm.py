"""Batch-norm statistics for a network that was never trained at exactly its weights."""

from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import update_bn

from subspaces import nested
from subspaces.points import Alpha
from subspaces.subspace import Subspace

Module = TypeVar("Module", bound=nn.Module)
Forward = Callable[[nn.Module, Any], Any]


def recalibrate(
    module: Module,
    loader: Iterable[Any],
    *,
    alpha: Alpha | None = None,
    batches: int | None = None,
    progress: bool = False,
    forward: Forward | None = None,
) -> Module:
    """Recompute the running mean and variance of every batch norm from data, in place; return the module.

    The statistics are reset and become the plain average over the batches of one pass in train mode,
    without autograd, as for stochastic weight averaging. Modes and momenta are restored whatever
    happens, and after an error the old statistics too. Without batch norm nothing is run.

    Args:
        module: a network, an `Ensemble` (each member gets its own statistics), or a family.
        loader: yields inputs, (input, target) pairs, or dicts of keyword arguments.
        alpha: for a family, the point whose statistics it shall hold, by default the midpoint. For
            several points at once, recalibrate `family.ensemble(points)`.
        batches: use at most this many batches.
        progress: show a progress bar.
        forward: runs the module on a batch, where the default does not fit your batches.
    """
    if isinstance(module, Subspace):
        alpha = module.shape.midpoint() if alpha is None else alpha
        module.coefficients(alpha)  # a bad alpha is an error before anything is reset
    elif alpha is not None:
        raise TypeError(f"alpha={alpha!r}: only a Subspace has points, this is a {type(module).__name__}")
    if batches is not None and batches < 1:
        raise ValueError(f"batches={batches}: expected at least 1, or None for the whole loader")
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    if not any(norm.track_running_stats for norm in norms):
        return module
    modes = {part: part.training for part in module.modules()}
    momenta = {norm: norm.momentum for norm in norms}
    statistics = {norm: [buffer.clone() for buffer in norm.buffers()] for norm in norms}
    runner = _Runner(module, alpha, forward)
    try:
        # update_bn takes the first item of a tuple: the batch goes through whole, the runner reads it.
        update_bn(((batch,) for batch in _batches(loader, batches, progress)), runner)
    except BaseException:
        for norm, values in statistics.items():
            for buffer, value in zip(norm.buffers(), values, strict=True):
                buffer.copy_(value)
        raise
    finally:
        for norm, momentum in momenta.items():
            norm.momentum = momentum
        for part, mode in modes.items():
            part.training = mode
    return module


class _Runner(nn.Module):
    """Runs a module on one batch of a loader, on the module's device and at one point of a family."""

    def __init__(self, module: nn.Module, alpha: Alpha | None, forward: Forward | None) -> None:
        super().__init__()
        self.module = module
        self.alpha = alpha
        self.run = forward
        self.device = next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))

    def forward(self, batch: Any) -> None:
        batch = nested.apply(self._move, batch)
        options = {} if self.alpha is None else {"alpha": self.alpha}
        if self.run is not None:
            self.run(self.module, batch)
        elif isinstance(batch, dict):
            self.module(**batch, **options)
        else:
            self.module(batch[0] if isinstance(batch, (tuple, list)) else batch, **options)

    def _move(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, non_blocking=True)


def _batches(loader: Iterable[Any], limit: int | None, progress: bool) -> Iterator[Any]:
    """Yield at most `limit` batches, with a progress bar on request; none at all is an error."""
    total = len(loader) if isinstance(loader, Sized) else None
    if limit is not None:
        total = limit if total is None else min(total, limit)
    limited: Iterable[Any] = islice(loader, limit)
    if progress:
        from rich.progress import track

        limited = track(limited, description="batch-norm statistics", total=total)
    empty = True
    for batch in limited:
        empty = False
        yield batch
    if empty:
        raise ValueError("recalibrate got a loader without batches: batch-norm statistics need data")
