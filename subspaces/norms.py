"""The batch norms of a network that keep statistics, and how many batches those are of."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class StatisticsWarning(UserWarning):
    """A family in eval mode whose batch-norm statistics belong to none of its points."""


STALE = (
    "the family's batch-norm statistics come from training at random points and belong to none of them: "
    "what it says in eval mode is noise. Before you evaluate it, write subspaces.recalibrate(family, train_loader), or "
    "make it with Subspace(…, statistics_every=10), which keeps those of the midpoint fresh"
)


def tracked(network: nn.Module) -> dict[str, _BatchNorm]:
    """Return the batch norms that keep statistics, by name; instance norm, say, is none."""
    parts = network.named_modules()
    return {name: part for name, part in parts if isinstance(part, _BatchNorm) and part.track_running_stats}


def batches(network: nn.Module) -> Tensor | None:
    """Return how many batches the statistics of a network have seen, over all its norms; None if it keeps none."""
    counts = [norm.num_batches_tracked for norm in tracked(network).values() if norm.num_batches_tracked is not None]
    return torch.stack([count.to(counts[0].device) for count in counts]).sum() if counts else None


@contextmanager
def untracked(network: nn.Module) -> Iterator[None]:
    """Let a network run in train mode without a change of its statistics."""
    norms = list(tracked(network).values())
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


@contextmanager
def forgetting(network: nn.Module, batches: int) -> Iterator[None]:
    """Let one batch weigh as so many would: with momentum 1 - (1 - momentum)^batches.

    Statistics of every tenth batch then follow the weights as quickly as those of every batch.
    """
    momenta = {norm: norm.momentum for norm in tracked(network).values()}
    for norm, momentum in momenta.items():
        if momentum is not None:  # else all batches weigh the same
            norm.momentum = 1 - (1 - momentum) ** batches
    try:
        yield
    finally:
        for norm, momentum in momenta.items():
            norm.momentum = momentum
