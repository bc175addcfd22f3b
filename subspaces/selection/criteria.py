"""By what points are compared: a loss for each example."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from subspaces import averages, labelled, values
from subspaces.errors import ArgumentError
from subspaces.text import nearest

Loss = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class Criterion:
    """A loss for each example, [n], of outputs and targets, and what it is called."""

    name: str
    loss: Loss
    slope: Loss
    """What is followed by its gradient: the loss itself, or one like it that has a gradient."""
    labelled: bool = True
    percent: bool = False  # what is shown is 1 - loss

    def value(self, losses: Tensor) -> float:
        """Return what is shown for the losses of some examples."""
        mean = float(losses.double().mean())
        return 1 - mean if self.percent else mean


def logits(output: Any) -> Tensor:
    """Return logits [n, classes] of an output in float64; one logit is that of the second of two classes."""
    found = averages.logits(output)
    found = found[0] if isinstance(found, (tuple, list)) and found else found
    if isinstance(found, Tensor) and found.is_floating_point() and found.ndim in (1, 2):
        wide = found.double().reshape(len(found), -1)
        return wide if wide.shape[1] > 1 else torch.cat([torch.zeros_like(wide), wide], 1)
    shape = f" of shape {tuple(found.shape)}" if isinstance(found, Tensor) else ""
    raise ArgumentError(
        f"the network returns a {type(found).__name__}{shape}: expected logits [n, classes], or an output with "
        ".logits; for anything else pass by=, a function of (output, target) that returns a loss for each example"
    )


def _nll(output: Any, target: Any) -> Tensor:
    found = logits(output)
    return F.cross_entropy(found, _classes(target, found), reduction="none")


def _error(output: Any, target: Any) -> Tensor:
    found = logits(output)
    wrong = (found.argmax(1) != _classes(target, found)).double()
    return wrong.where(~found.log_softmax(1).isnan().any(1), math.nan)  # such a point is not chosen


def _entropy(output: Any, target: Any) -> Tensor:
    logs = logits(output).log_softmax(1)
    return -(logs.exp() * logs).sum(1)


def _classes(target: Any, found: Tensor) -> Tensor:
    labels = labelled.numbers(target, found.device, "a class number for each example")
    whole = not labels.is_complex() and (not labels.is_floating_point() or bool((labels == labels.round()).all()))
    if not whole or labels.numel() != len(found):
        raise ArgumentError(
            f"targets of dtype {labels.dtype} and shape {tuple(labels.shape)} for {len(found)} examples: expected a "
            "class number for each; for anything else pass by=, a function of (output, target)"
        )
    classes = labels.reshape(-1).long()
    labelled.check_classes(classes, found.shape[1], "leave examples out that have no class")
    return classes


CRITERIA = {
    each.name: each
    for each in (
        Criterion("nll", _nll, _nll),
        Criterion("accuracy", _error, _nll, percent=True),
        Criterion("entropy", _entropy, _entropy, labelled=False),
    )
}


def criterion(by: str | Loss) -> Criterion:
    """Return a criterion by its name, or that of a function."""
    if isinstance(by, str):
        if by not in CRITERIA:
            raise ArgumentError(f"by={by!r}: {nearest(by, CRITERIA)}, or a function of (output, target)")
        return CRITERIA[by]
    values.function("by", by, f"one of {', '.join(CRITERIA)}, or a function of (output, target)")
    return Criterion(getattr(by, "__name__", "loss"), by, by)


def words(by: str, value: float) -> str:
    """Return a value of a criterion, or a difference of two, as text."""
    return f"{100 * value:.2f}%" if by in CRITERIA and CRITERIA[by].percent else f"{value:.4g}"
