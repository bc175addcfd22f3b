"""The batch norms of a network that keep statistics, and how many batches those are of."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from subspaces.errors import ArgumentError


class StatisticsWarning(UserWarning):
    """A family in eval mode whose batch-norm statistics belong to none of its points."""


STALE = (
    "the family's batch-norm statistics come from training at random points and belong to none of them: "
    "what it says in eval mode is noise. Before you evaluate it, write subspaces.recalibrate(family, train_loader), or "
    "make it with Subspace(…, statistics_every=10), which keeps those of the midpoint fresh"
)


def _directly(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


class Apart:
    """Calls functions that `torch.compile` does not look into, once `begin` was called."""

    run: Callable[..., Any] = staticmethod(_directly)

    def begin(self) -> None:
        """Keep the compiler out from here on; importing it takes a second, for those alone who need it."""
        if self.run is _directly:
            self.run = torch.compiler.disable(_directly)


apart = Apart()


def tracked(network: nn.Module) -> dict[str, _BatchNorm]:
    """Return the batch norms that keep statistics, by name; instance norm, say, is none."""
    parts = network.named_modules()
    return {name: part for name, part in parts if isinstance(part, _BatchNorm) and part.track_running_stats}


def batches(network: nn.Module) -> Tensor | None:
    """Return how many batches the statistics of a network have seen, over all its norms; None if it keeps none."""
    counts = [norm.num_batches_tracked for norm in tracked(network).values() if norm.num_batches_tracked is not None]
    return torch.stack([count.to(counts[0].device) for count in counts]).sum() if counts else None


def check_given(network: nn.Module, statistics: object) -> None:
    """Refuse a network with batch norm where nothing is passed to make the statistics of its points from."""
    if statistics is None and (found := tracked(network)):
        raise ArgumentError(
            f"the network has batch norm ({next(iter(found))}), whose statistics belong to no point of a family: "
            "pass statistics=, the training loader"
        )


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
def discounting_empty(network: nn.Module) -> Iterator[list[nn.Module]]:
    """Let batch norms not count empty batches, which have no mean and variance; yield those that got some."""
    found: list[nn.Module] = []

    def discount(norm: nn.Module, inputs: Any, output: Tensor) -> None:
        if norm.training and not output.numel() and isinstance(norm.num_batches_tracked, Tensor):
            norm.num_batches_tracked.sub_(1)
            found.append(norm)

    hooks = [norm.register_forward_hook(discount) for norm in tracked(network).values()]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


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
        with discounting_empty(network):
            yield
    finally:
        for norm, momentum in momenta.items():
            norm.momentum = momentum


class KeepingStatistics(nn.Module):
    """What a family knows of its batch-norm statistics: whether they are those of one point.

    `calibrated` is how many batches they had seen when they were; a step of training adds one.
    """

    template: nn.Module
    calibrated: Tensor | None

    def begin_statistics(self, known: bool) -> None:
        """Begin with the network's statistics, which are of a point if that is known, or if they are of nothing yet."""
        seen = batches(self.template)
        self._asked = False
        if seen is not None:
            self.register_buffer("calibrated", seen if known or not seen else torch.full_like(seen, -1))

    def keep_statistics(self, known: bool = True) -> None:
        """Say that the batch-norm statistics are now those of one point, or of none that is known."""
        seen, calibrated = batches(self.template), getattr(self, "calibrated", None)
        if seen is not None and calibrated is not None:
            calibrated.copy_(seen if known else torch.full_like(seen, -1))

    @property
    def is_calibrated(self) -> bool:
        """Whether the batch-norm statistics are those of one point; also where there are none."""
        seen, calibrated = batches(self.template), getattr(self, "calibrated", None)
        return seen is None or calibrated is None or bool(seen == calibrated)

    def check_statistics(self) -> None:
        """Warn, at the first call in eval mode, if the statistics are not those of a point."""
        if torch.compiler.is_compiling() or torch._C._get_tracing_state() or self._asked:
            return
        self._asked = True
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return  # nothing can be read now
        if not self.is_calibrated:
            warnings.warn(STALE, StatisticsWarning, stacklevel=5)

    def train(self, mode: bool = True) -> Self:
        self._asked = False
        return super().train(mode)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self._asked = False
        calibrated = getattr(self, "calibrated", None)
        if calibrated is not None:  # of a checkpoint that does not know, say the worst
            state_dict.setdefault(f"{prefix}calibrated", torch.full_like(calibrated, -1))
        super()._load_from_state_dict(state_dict, prefix, *args)
