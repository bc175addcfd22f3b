"""What points are compared by: a loss for each example."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from subspaces.core import checks, nested
from subspaces.core.outputs import Outputs, prediction, to_log_pair, to_log_probabilities, to_outputs
from subspaces.errors import ArgumentError
from subspaces.text import nearest

Loss = Callable[[Any, Any], Tensor]
EXPECTED = (
    "logits [n, classes], or an output with .logits; for anything else pass by=, a function of (output, target) that "
    "returns a loss for each example"
)


@dataclass(frozen=True)
class Criterion:
    """A loss for each example, [n], of outputs and targets."""

    name: str
    loss: Loss
    slope: Loss
    """A loss with a gradient, which a search follows."""
    labelled: bool = True
    percent: bool = False  # 1 - loss is shown
    checked: bool = False
    """Whether outputs that are not logits, or what `outputs` says, are refused."""
    outputs: Outputs | None = None

    def value(self, losses: Tensor) -> float:
        """Return the value that is shown for the losses of some examples."""
        mean = float(losses.double().mean())
        return 1 - mean if self.percent else mean


def criterion(by: str | Loss, outputs: Outputs | None = None) -> Criterion:
    """Return a criterion by its name, or that of a function, for networks that return `outputs` (None: logits)."""
    if isinstance(by, str):
        if by not in CRITERIA:
            raise ArgumentError(f"by={by!r}: {nearest(by, CRITERIA)}, or a function of (output, target)")
        return _named(None if outputs is None else to_outputs("outputs", outputs))[by]
    checks.function("by", by, f"one of {', '.join(CRITERIA)}, or a function of (output, target)")
    if outputs is not None:
        raise ArgumentError(f"outputs={outputs!r}: a function by= gets outputs as they are; expected it with a name")
    return Criterion(getattr(by, "__name__", "loss"), by, by)


def classes_of(output: Any) -> Tensor:
    """Return the logits or probabilities of an output: [n, classes], or [n] where there is one for each example."""
    found = prediction(output, EXPECTED)
    if found.ndim not in (1, 2):
        raise ArgumentError(f"the network returns a Tensor of shape {tuple(found.shape)}: expected {EXPECTED}")
    return found.squeeze(1) if found.ndim == 2 and found.shape[1] == 1 else found


def _log_probabilities(outputs: Outputs | None, output: Any) -> Tensor:
    """Return log-probabilities [n, classes] in float64; one number for each example is that of the second class.

    A probability of 0 counts as the smallest number of its type, as a mean of infinite losses says nothing.
    """
    found = classes_of(output)
    if outputs == "probabilities":
        tiny = torch.finfo(found.dtype).tiny
        found = found.double().clamp(min=tiny)
        return torch.stack([(1 - found).clamp(min=tiny), found], 1).log() if found.ndim == 1 else found.log()
    found = found.double()
    return to_log_pair(found, outputs) if found.ndim == 1 else to_log_probabilities(found, outputs)


def _nll(outputs: Outputs | None, output: Any, target: Any) -> Tensor:
    logs = _log_probabilities(outputs, output)
    return F.nll_loss(logs, _classes(target, logs), reduction="none")


def _error(outputs: Outputs | None, output: Any, target: Any) -> Tensor:
    logs = _log_probabilities(outputs, output)
    wrong = (logs.argmax(1) != _classes(target, logs)).double()
    return wrong.where(~logs.isnan().any(1), math.nan)  # such a point is not chosen


def _entropy(outputs: Outputs | None, output: Any, target: Any) -> Tensor:
    logs = _log_probabilities(outputs, output)
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


def _named(outputs: Outputs | None) -> dict[str, Criterion]:
    nll, error, entropy = (partial(each, outputs) for each in (_nll, _error, _entropy))
    return {
        "nll": Criterion("nll", nll, nll, checked=True, outputs=outputs),
        "accuracy": Criterion("accuracy", error, nll, percent=True, checked=True, outputs=outputs),
        "entropy": Criterion("entropy", entropy, entropy, labelled=False, checked=True, outputs=outputs),
    }


CRITERIA = tuple(_named(None))
