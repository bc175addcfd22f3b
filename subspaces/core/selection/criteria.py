"""What points are compared by: a loss for each example."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from subspaces.core import checks, nested
from subspaces.core.outputs import OutputCheck, Outputs, prediction, to_log_pair, to_log_probabilities, to_outputs
from subspaces.errors import ArgumentError
from subspaces.text import nearest

Loss = Callable[[Any, Any], Tensor]
EXPECTED = (
    "logits [n, classes], or an output with .logits; for anything else pass by=, a function of (output, target) that "
    "returns a loss for each example"
)


class Criterion(NamedTuple):
    """A loss for each example, [n], of outputs and targets."""

    name: str
    loss: Loss
    slope: Loss  # a loss with a gradient, which a search follows
    labelled: bool = True
    percent: bool = False  # 1 - loss is shown


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
