"""Warnings of a family whose predictions are noise: its statistics, or its points, are random ones."""

import warnings
from typing import Any, Self

import torch
from torch import Tensor, nn

from subspaces.core import _compat
from subspaces.core._compat import InstanceNorm
from subspaces.core.batchnorm import batches, kind, tracked
from subspaces.core.shapes import Shape

STALE = (
    "the family's {kind}-norm statistics come from training at random points and belong to none of them: "
    "its predictions in eval mode are noise. Before you evaluate it, write subspaces.recalibrate(family, "
    "train_loader), or make it with Subspace(…, statistics_every=10), which keeps those of the midpoint fresh"
)
MOVED = (
    "training at random points changed {names} of the network, which recalibrate does not renew: what is kept there "
    "belongs to no point of the family, and predictions in eval mode use it. If it is a running mean or the like, run "
    "some training batches at the midpoint before family.eval(): with torch.no_grad(): family(x, "
    "alpha=family.shape.midpoint()); torch's own batch and instance norms are renewed by subspaces.recalibrate"
)
RANDOM = (
    "the family predicts without gradients in train mode, so each call is at another random point: call family.eval() "
    "for the midpoint, or pass alpha= (alpha=family.sample() if a random point is meant)"
)


class StatisticsWarning(UserWarning):
    """A family in eval mode whose running statistics belong to none of its points."""


class RandomPointWarning(UserWarning):
    """A family that predicts at random points, because it is in train mode."""


class KeepingStatistics(nn.Module):
    """Tracks whether the running statistics of a family are those of one point, and warns if not.

    `calibrated` is how many batches they had seen when they were; a step of training adds one. Instance norms and
    hand-written ones do not count, so the first call of each period of training looks at which buffers it changes.
    """

    template: nn.Module
    shape: Shape
    calibrated: Tensor | None
    _asked = False  # whether statistics were checked since the last change of mode
    _looking = True  # whether the next training call looks at which buffers it changes
    _moved: tuple[str, ...] = ()  # buffers that training changed, and that belong to no norm of torch's
    _warned: tuple[str, ...] = ()  # warnings that are given once

    def begin_statistics(self, known: bool) -> None:
        """Begin with the network's statistics, which are those of a point if `known`, or before any batch."""
        seen = batches(self.template)
        self.register_buffer("calibrated", seen if seen is None or known or not seen else torch.full_like(seen, -1))

    def keep_statistics(self, known: bool = True) -> None:
        """Note that the batch-norm statistics are now those of one point, or of no known one."""
        seen = batches(self.template)
        self._looking = True
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
            if alpha is not None:
                self._moved = ()  # what such passes change belongs to that point
            elif self.shape.vertices > 1 and "mode" not in self._warned:
                self._warned += ("mode",)
                warnings.warn(RANDOM, RandomPointWarning, stacklevel=depth + 1)
        elif not self._asked:
            self._asked = True
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                return  # nothing can be read now
            if not self.is_calibrated:
                warnings.warn(STALE.format(kind=kind(tracked(self.template))), StatisticsWarning, stacklevel=depth + 1)
            self.check_moved(depth)

    def check_moved(self, depth: int = 4) -> None:
        """Warn, once, of buffers that training changed and that are those of no point."""
        if self._moved and "moved" not in self._warned and not torch.compiler.is_compiling():
            self._warned += ("moved",)
            shown = ", ".join(map(repr, self._moved[:3])) + (", …" if len(self._moved) > 3 else "")
            warnings.warn(MOVED.format(names=f"buffer {shown}"), StatisticsWarning, stacklevel=depth + 2)

    def look(self) -> dict[str, tuple[Tensor, int]] | None:
        """Return the buffers before the first training call after a change of mode; None at any other call."""
        traced = torch.compiler.is_compiling() or _compat.is_tracing()
        wanted = self._looking and self.training and torch.is_grad_enabled() and not traced
        return _versions(self.template) if wanted else None

    def look_again(self, before: dict[str, tuple[Tensor, int]]) -> None:
        """Note which floating-point buffers a training call has changed."""
        names = []
        for name, (value, version) in _versions(self.template).items():
            old, version_before = before.get(name, (None, 0))
            if old is not value or version != version_before:
                names.append(name)
        norms = tracked(self.template)
        if any(isinstance(norms.get(name.rpartition(".")[0]), InstanceNorm) for name in names):
            self.keep_statistics(known=False)  # instance norms do not count
        self._looking = False
        theirs = {f"{name}.{key}" for name, norm in norms.items() for key, _ in norm.named_buffers()}
        self._moved = tuple(dict.fromkeys([*self._moved, *(name for name in names if name not in theirs)]))

    def train(self, mode: bool = True) -> Self:
        self._asked = False
        self._looking |= not self.training
        return super().train(mode)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self._asked, self._looking, self._moved = False, True, ()
        if self.calibrated is not None:  # a checkpoint without it is taken for stale
            state_dict.setdefault(f"{prefix}calibrated", torch.full_like(self.calibrated, -1))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _versions(network: nn.Module) -> dict[str, tuple[Tensor, int]]:
    """Return the floating-point buffers of a network by name, with torch's counts of changes in place.

    Those that are not saved, such as caches and tables of positions, and single numbers, such as counters, are left
    out.
    """
    found = {}
    for name, part in network.named_modules():
        for key, value in part._buffers.items():
            if value is None or key in part._non_persistent_buffers_set or not value.is_floating_point():
                continue
            if value.ndim and not value.is_inference():
                found[f"{name}.{key}".lstrip(".")] = value, value._version
    return found
