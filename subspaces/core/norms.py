"""The norms of a network that keep running statistics, and other buffers that training changes."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm

from subspaces.core.shapes import Shape
from subspaces.errors import ArgumentError


class StatisticsWarning(UserWarning):
    """A family in eval mode whose running statistics belong to none of its points."""


class RandomPointWarning(UserWarning):
    """A family that predicts at random points, because it is in train mode."""


STALE = (
    "the family's {kind}-norm statistics come from training at random points and belong to none of them: "
    "what it says in eval mode is noise. Before you evaluate it, write subspaces.recalibrate(family, train_loader), or "
    "make it with Subspace(…, statistics_every=10), which keeps those of the midpoint fresh"
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


def tracked(network: nn.Module) -> dict[str, _NormBase]:
    """Return the batch and instance norms that keep running statistics, by name."""
    parts = network.named_modules()
    return {name: part for name, part in parts if isinstance(part, _NormBase) and part.track_running_stats}


def kind(norms: Iterable[_NormBase]) -> str:
    """Return what norms are called: "batch" norms, or "instance" norms if there are no others."""
    return "instance" if all(isinstance(norm, _InstanceNorm) for norm in norms) else "batch"


def moving(network: nn.Module) -> dict[str, tuple[Tensor, int]]:
    """Return the floating-point buffers of a network by name, with torch's counts of changes in place.

    Those that are not saved, such as caches and tables of positions, and single numbers, such as counters, are left
    out.
    """
    parts = {name: part for name, part in network.named_modules() if part._non_persistent_buffers_set}
    unsaved = {f"{name}.{key}".lstrip(".") for name, part in parts.items() for key in part._non_persistent_buffers_set}
    return {
        name: (value, value._version)
        for name, value in network.named_buffers()
        if value.is_floating_point() and value.ndim and not value.is_inference() and name not in unsaved
    }


def batches(network: nn.Module) -> Tensor | None:
    """Return how many batches the statistics of a network have seen, over all its norms; None if it keeps none.

    Instance norms do not count: theirs is the number that `recalibrate` saw.
    """
    counts = [norm.num_batches_tracked for norm in tracked(network).values() if norm.num_batches_tracked is not None]
    return torch.stack([count.to(counts[0].device) for count in counts]).sum() if counts else None


def check_given(network: nn.Module, statistics: object) -> None:
    """Refuse a network with batch norm where nothing is passed to make the statistics of its points from."""
    if statistics is None and (found := tracked(network)):
        raise ArgumentError(
            f"the network has {kind(found.values())} norm ({next(iter(found))}), whose statistics belong to no point "
            "of a family: pass statistics=, the training loader"
        )


@contextmanager
def untracked(network: nn.Module) -> Iterator[None]:
    """Let a network run in train mode without a change of its statistics."""
    norms = list(tracked(network).values())
    kept: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for norm in norms:
        norm.track_running_stats = False
        if isinstance(norm, _InstanceNorm) and norm.training:  # which updates what it has, whatever that flag says
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
def discounting_empty(network: nn.Module) -> Iterator[list[nn.Module]]:
    """Let batch norms not count empty batches, which have no mean and variance; yield those that got some."""
    found: list[nn.Module] = []

    def discount(norm: nn.Module, inputs: Any, output: Tensor) -> None:
        count = norm.num_batches_tracked if isinstance(norm, _BatchNorm) else None  # instance norms do not count
        if norm.training and count is not None and not output.numel():
            count.sub_(1)
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
    """What a family knows of its running statistics: whether they are those of one point.

    `calibrated` is how many batches they had seen when they were; a step of training adds one. Instance norms and
    hand-written ones do not count, so the first call of each period of training looks at which buffers it changes.
    """

    template: nn.Module
    shape: Shape
    calibrated: Tensor | None
    _looking = True
    """Whether the next training call looks at which buffers it changes."""
    _moved: tuple[str, ...] = ()
    """Buffers that training changed, and that belong to no norm of torch's."""
    _told: frozenset[str] = frozenset()
    """Warnings that were given, which are given once."""

    def begin_statistics(self, known: bool) -> None:
        """Begin with the network's statistics, which are of a point if that is known, or if they are of nothing yet."""
        seen = batches(self.template)
        self._asked = False
        if seen is not None:
            self.register_buffer("calibrated", seen if known or not seen else torch.full_like(seen, -1))

    def keep_statistics(self, known: bool = True) -> None:
        """Say that the batch-norm statistics are now those of one point, or of none that is known."""
        seen, calibrated = batches(self.template), getattr(self, "calibrated", None)
        self._looking = True
        if seen is not None and calibrated is not None:
            calibrated.copy_(seen if known else torch.full_like(seen, -1))

    @property
    def is_calibrated(self) -> bool:
        """Whether the batch-norm statistics are those of one point; also where there are none."""
        seen, calibrated = batches(self.template), getattr(self, "calibrated", None)
        return seen is None or calibrated is None or bool(seen == calibrated)

    def check_statistics(self, depth: int = 4) -> None:
        """Warn, at the first call in eval mode, if statistics or other buffers are not those of a point."""
        if _unreadable() or self._asked:
            return
        self._asked = True
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return  # nothing can be read now
        if not self.is_calibrated:
            named = STALE.format(kind=kind(tracked(self.template).values()))
            warnings.warn(named, StatisticsWarning, stacklevel=depth + 1)
        self.check_moved(depth)

    def check_moved(self, depth: int = 4) -> None:
        """Warn, once, of buffers that training changed and that are those of no point."""
        if self._moved and not _unreadable() and self._tell("moved"):
            shown = ", ".join(map(repr, self._moved[:3])) + (", …" if len(self._moved) > 3 else "")
            warnings.warn(MOVED.format(names=f"buffer {shown}"), StatisticsWarning, stacklevel=depth + 2)

    def check_mode(self, alpha: Any, depth: int = 4) -> None:
        """Warn, once, of predictions at random points: in train mode without gradient."""
        if _unreadable():
            return
        if alpha is not None:
            self._moved = ()  # what such passes change belongs to that point
        elif self.shape.vertices > 1 and self._tell("mode"):
            warnings.warn(RANDOM, RandomPointWarning, stacklevel=depth + 1)

    def _tell(self, what: str) -> bool:
        """Say whether something is to be told, which it is once."""
        known = what in self._told
        self._told |= {what}
        return not known

    def look(self) -> dict[str, tuple[Tensor, int]] | None:
        """Return the buffers before the first training call after a change of mode; None at any other call."""
        wanted = self._looking and self.training and torch.is_grad_enabled() and not _unreadable()
        return moving(self.template) if wanted else None

    def look_again(self, before: dict[str, tuple[Tensor, int]]) -> None:
        """Note which floating-point buffers a training call has changed."""
        after = moving(self.template)
        names = [name for name, (value, version) in after.items() if not _same(before.get(name), value, version)]
        norms = tracked(self.template)
        if any(isinstance(norms.get(name.rpartition(".")[0]), _InstanceNorm) for name in names):
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
        calibrated = getattr(self, "calibrated", None)
        if calibrated is not None:  # of a checkpoint that does not know, say the worst
            state_dict.setdefault(f"{prefix}calibrated", torch.full_like(calibrated, -1))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _unreadable() -> bool:
    """Say whether a call is compiled or traced, which cannot warn."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def _same(before: tuple[Tensor, int] | None, value: Tensor, version: int) -> bool:
    return before is not None and before[0] is value and before[1] == version
