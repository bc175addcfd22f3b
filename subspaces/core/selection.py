"""`family.select`: the best point for a new domain, from a few examples, and what is known of how good it is."""

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from subspaces.core import batchnorm, checks, nested
from subspaces.core.alpha import Alpha
from subspaces.core.outputs import OutputCheck, Outputs, prediction, to_log_pair, to_log_probabilities, to_outputs
from subspaces.core.randomness import SEEDS
from subspaces.core.search import Criterion, Loss, Losses, Search, cross_validated, grid, path
from subspaces.errors import ArgumentError
from subspaces.text import nearest, one_of

By = Literal["nll", "accuracy", "entropy"]
Per = Literal["network", "layer"]
SHOWN = 6  # layers or vertices in a line of text
EXPECTED = (
    "logits [n, classes], or an output with .logits; for anything else pass by=, a function of (output, target) that "
    "returns a loss for each example"
)


@dataclass(frozen=True)
class Searched:
    """A point that was looked at, and its value on the examples that it was chosen on."""

    alpha: Alpha
    value: float


@dataclass(frozen=True)
class Selection:
    """The point of a family that `family.select` chose for a new domain; `family.at(selection.alpha)` is its network.

    `midpoint`, `value`, `best` and `worst` are means over the given examples: of the midpoint, the chosen point, and
    the best and worst that were searched; all but the first are optimistic. `gain` is not: it is what the whole
    procedure gains over the midpoint on examples that it has not seen, by cross-validation, with its standard error.

    Example:
        >>> selection = family.select(labelled, by="accuracy", statistics=train_loader)
        >>> print(selection)
        chosen by accuracy on 64 labelled examples: ...
        >>> net = family.at(selection.alpha) if selection.moved else family.midpoint()
    """

    alpha: Alpha
    by: str
    labelled: bool
    examples: int
    midpoint: float
    value: float
    best: Searched
    worst: Searched
    gain: float | None
    error: float | None
    moved: bool

    def __str__(self) -> str:
        def text(value: float) -> str:
            return f"{100 * value:.2f}%" if self.by == "accuracy" else f"{value:.4g}"

        labels = "labelled examples" if self.labelled else "examples without labels"
        where = "the point" if self.moved else "no other point is better for certain: the midpoint"
        best, worst = (f"{text(each.value)} at {shown(each.alpha)}" for each in (self.best, self.worst))
        lines = [
            f"chosen by {self.by} on {self.examples:,} {labels}: {where} {shown(self.alpha)}",
            f"there: {text(self.value)}, and {text(self.midpoint)} at the midpoint",
            f"of the points searched, on the same examples, which flatters: best {best}; worst {worst}",
        ]
        if self.gain is not None and self.error is not None:
            gain = f"{text(self.gain)} ± {text(self.error)}"
            lines.insert(2, f"gain over the midpoint to expect on new examples: {gain} (cross-validated)")
        if not self.labelled:
            lines.append("without labels: a lower entropy is surer, and need not be right more often")
        return "\n".join(lines)


def shown(alpha: Any) -> str:
    """Return a point as text, cut where it has many parts."""
    if not isinstance(alpha, (list, tuple)):
        return f"{float(alpha):.3g}"
    more = f", and {len(alpha) - SHOWN} more" if len(alpha) > SHOWN else ""
    return f"({', '.join(map(shown, alpha[:SHOWN]))}{more})"


def select(
    family: Any,
    loader: Iterable[Any],
    by: By | Loss = "nll",
    *,
    outputs: Outputs | None = None,
    statistics: Iterable[Any] | None = None,
    batches: int | None = 100,
    per: Per = "network",
    points: int = 21,
    steps: int = 40,
    folds: int = 5,
    level: float = 0.05,
    seed: int = 0,
) -> Selection:
    """Choose the point for a new domain, on a few examples of it; the family stays as it is.

    Taken is the point with the largest mean(gain) - z error over the midpoint, if that is above 0, and else the
    midpoint (see `subspaces.core.search`): where none is better, the midpoint stays with a probability of
    1 - `level`, however many points are searched. What this cannot see is a rare, very large loss that is not among
    the examples. On a line or curve all points of a grid are measured; on a simplex, or for one point in each layer,
    the point follows the gradient from the midpoint, and the same rule decides how far.

    Args:
        loader: batches (inputs, target), or dicts with "labels"; all of them are kept in memory.
        by: "nll", "accuracy" (by gradient, the nll is followed), "entropy", which needs no labels, or a function of
            (output, target) that returns a loss for each example, [n].
        outputs: what the network returns, for a `by` of these names: "logits", "probabilities" (it ends in a
            softmax or sigmoid) or "log-probabilities". By default logits; what looks like probabilities is refused.
        statistics: training batches, from which batch-norm statistics are made at every point that is measured.
        batches: use at most this many of them; None: all.
        per: one point for the "network", or one for each "layer".
        points: of the grid, from one end to the other.
        steps: the most that a path has.
        folds: of the cross-validation; 0 or 1: none, and no `gain`.
        level: how likely a move without a reason may be.
        seed: of the folds, and of the order of training batches.

    Example:
        >>> selection = family.select(labelled, by="nll", statistics=train_loader)
        >>> network = ss.recalibrate(family.at(selection.alpha), train_loader)
    """
    compared = criterion(by, outputs)
    _check(family, loader, per, points, steps, folds, level, seed)
    seed = int(seed)  # also of numpy
    batchnorm.check_given(family.template, statistics)
    if statistics is not None:
        checks.batches("statistics", statistics)
    if batches is not None:
        checks.whole("batches", batches, 1, sys.maxsize, beside=", or None for all")
    devices = [family.device] if family.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.inference_mode(False):
        losses = Losses(family, loader, compared, statistics, batches, seed)
        if family.shape.point or per == "layer":
            found = path(losses, per == "layer", steps, level, seed)
        else:
            found = grid(losses, points, level, seed)
        return _selection(found, compared, losses.examples, folds, seed)


def _check(family: Any, loader: object, per: str, points: int, steps: int, folds: int, level: float, seed: int) -> None:
    if family.shape.vertices < 2:
        raise ArgumentError(f"select: {family.shape} has one point, there is nothing to choose from; expected a family")
    if family.mesh is not None:
        raise ArgumentError(
            "select got a distributed family, whose ranks would choose different points: save it, and choose in one "
            "process, ss.load(path, network).select(…)"
        )
    checks.batches("loader", loader, again=False)
    one_of("per", per, get_args(Per))
    limits = {"points": (points, 2, 10_001), "steps": (steps, 1, 10_000), "folds": (folds, 0, 10_000)}
    for name, (value, least, most) in {**limits, "seed": (seed, 0, SEEDS - 1)}.items():
        checks.whole(name, value, least, most)
    if not 0 < checks.number("level", level) < 1:
        raise ArgumentError(f"level={checks.shown(level)}: expected a probability between 0 and 1, such as 0.05")


def _selection(search: Search, by: Criterion, n: int, folds: int, seed: int) -> Selection:
    every, middle, choose = search
    if not bool(middle.isfinite().all()):
        raise ArgumentError(
            f"{by.name} is not finite at the midpoint for {int((~middle.isfinite()).sum())} of {n} examples: check "
            "that neither the examples nor the network hold NaN or infinity"
        )
    chosen = choose(torch.arange(n))
    gain = error = None
    if folds > 1 and n > 1:
        gain, error = cross_validated(lambda among: middle - choose(among).losses, n, min(folds, n), seed)

    def value(losses: Tensor) -> float:
        mean = float(losses.double().mean())
        return 1 - mean if by.percent else mean

    def rank(each: Searched) -> float:  # NaN ranks last
        return math.inf if math.isnan(each.value) else -each.value if by.percent else each.value

    ranked = sorted((Searched(each.alpha, value(each.losses)) for each in every), key=rank)
    ends = value(middle), value(chosen.losses), ranked[0], ranked[-1]
    return Selection(chosen.alpha, by.name, by.labelled, n, *ends, gain, error, chosen.losses is not middle)


# Criteria


def criterion(by: str | Loss, outputs: Outputs | None = None) -> Criterion:
    """Return a criterion by its name, or that of a function, for networks that return `outputs` (None: logits)."""
    if not isinstance(by, str):
        checks.function("by", by, f"one of {', '.join(CRITERIA)}, or a function of (output, target)")
        if outputs is not None:
            raise ArgumentError(f"outputs={outputs!r}: a function by= gets outputs as they are; expected a name")
        return Criterion(getattr(by, "__name__", "loss"), by, by)
    if by not in CRITERIA:
        raise ArgumentError(f"by={by!r}: {nearest(by, CRITERIA)}, or a function of (output, target)")
    check = OutputCheck(None if outputs is None else to_outputs("outputs", outputs))

    def of(loss: Loss) -> Loss:
        return lambda output, target: loss(_log_probabilities(output, check), target)

    loss, slope = CRITERIA[by]
    return Criterion(by, of(loss), of(slope), by != "entropy", by == "accuracy")


def _log_probabilities(output: Any, check: OutputCheck) -> Tensor:
    """Return log-probabilities [n, classes] in float64; one number for each example is that of the second class.

    A probability of 0 counts as the smallest number of its type, as a mean of infinite losses says nothing.
    """
    found = prediction(output, EXPECTED)
    if found.ndim not in (1, 2):
        raise ArgumentError(f"the network returns a Tensor of shape {tuple(found.shape)}: expected {EXPECTED}")
    found = found.squeeze(1) if found.ndim == 2 and found.shape[1] == 1 else found
    check(found, single=found.ndim == 1)
    tiny, found = torch.finfo(found.dtype).tiny, found.double()
    if check.outputs != "probabilities":
        return to_log_pair(found, check.outputs) if found.ndim == 1 else to_log_probabilities(found, check.outputs)
    found = found.clamp(min=tiny)
    return torch.stack([(1 - found).clamp(min=tiny), found], 1).log() if found.ndim == 1 else found.log()


def _nll(logs: Tensor, target: Any) -> Tensor:
    return F.nll_loss(logs, _classes(target, logs), reduction="none")


def _error(logs: Tensor, target: Any) -> Tensor:
    wrong = (logs.argmax(1) != _classes(target, logs)).double()
    return wrong.where(~logs.isnan().any(1), math.nan)  # such a point is not chosen


def _entropy(logs: Tensor, target: Any) -> Tensor:
    return -(logs.exp() * logs).sum(1)


def _classes(target: Any, found: Tensor) -> Tensor:
    labels = nested.numbers(target, found.device, "a class number for each example")
    whole = not labels.is_complex() and (not labels.is_floating_point() or bool((labels == labels.round()).all()))
    if not whole or labels.numel() != len(found):
        raise ArgumentError(
            f"targets of dtype {labels.dtype} and shape {tuple(labels.shape)} for {len(found)} examples: expected a "
            "class number for each; for anything else pass by=, a function of (output, target)"
        )
    classes = labels.reshape(-1).long()
    nested.check_classes(classes, found.shape[1], "leave examples out that have no class")
    return classes


CRITERIA: dict[str, tuple[Loss, Loss]] = {
    "nll": (_nll, _nll),
    "accuracy": (_error, _nll),
    "entropy": (_entropy, _entropy),
}
"""Losses of log-probabilities and targets, and those with a gradient that a search follows in their place."""
