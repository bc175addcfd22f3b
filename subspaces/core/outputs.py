"""What the outputs of a classifier are: logits, probabilities or log-probabilities."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.text import nearest

Outputs = Literal["logits", "probabilities", "log-probabilities"]
ENOUGH = 8  # so many numbers in [0, 1], each alone, are no coincidence


def to_outputs(name: str, value: Any) -> Outputs:
    """Return a kind of outputs that a user has named, with `-` or `_`."""
    known = get_args(Outputs)
    found = value.replace("_", "-") if isinstance(value, str) else value
    if found not in known:
        raise ArgumentError(f"{name}={checks.shown(value)}: {nearest(str(found), known)}")
    return found  # type: ignore[return-value]


def logits(output: Any) -> Any:
    """Return the tensor that an output has under the name `logits`, or the output itself."""
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    return found if isinstance(found, Tensor) else output


def prediction(output: Any, expected: str = "logits, or an output with .logits") -> Tensor:
    """Return the tensor in the output of a classifier that is its prediction: the `logits`, or the first of a tuple."""
    found = logits(output)
    found = found[0] if isinstance(found, (tuple, list)) and found else found
    if not isinstance(found, Tensor) or not found.is_floating_point():
        kind = f"tensor of {found.dtype}" if isinstance(found, Tensor) else type(output).__name__
        raise ArgumentError(f"the network returns a {kind}: expected {expected}")
    return found


def to_log_probabilities(value: Tensor, outputs: Outputs | None, dim: int = -1) -> Tensor:
    """Return log-probabilities, from outputs whose classes lie along `dim`."""
    if outputs == "probabilities":
        return value.log()
    return value if outputs == "log-probabilities" else F.log_softmax(value, dim)


def to_log_pair(value: Tensor, outputs: Outputs | None) -> Tensor:
    """Return log(1 - p) and log p of outputs that each stand for the second of two classes: [...] -> [..., 2]."""
    if outputs == "probabilities":
        return torch.stack([torch.log1p(-value), value.log()], -1)
    if outputs == "log-probabilities":
        return torch.stack([torch.log(-torch.expm1(value)), value], -1)
    return torch.stack([F.logsigmoid(-value), F.logsigmoid(value)], -1)


class OutputCheck:
    """Refuses outputs that are not what the user says, or not logits if nothing is said, once that is clear.

    Rows of several classes are judged by the first that are finite; numbers that each stand for the second of two
    classes when one lies outside [0, 1], or when there are several different ones inside.
    """

    def __init__(self, outputs: Outputs | None, who: str = "the network's outputs") -> None:
        self.outputs, self.who = outputs, who
        self.done = outputs == "logits"
        self._count, self._extremes = 0, set[float]()

    def __call__(self, value: Tensor, dim: int = -1, *, single: bool = False) -> None:
        """Look at the outputs of a batch, whose classes lie along `dim`; `single`: each number stands alone."""
        if self.done:
            return
        given = value.detach().exp() if self.outputs == "log-probabilities" else value.detach()
        rows = given.reshape(-1, 1) if single else given.movedim(dim, -1).flatten(0, -2)
        rows = rows[rows.isfinite().all(-1)]
        if not rows.numel():
            return
        tolerance = 1e-3 if rows.dtype in (torch.float32, torch.float64) else 1e-2  # of a sum, by rounding
        found = bool(((rows >= 0) & (rows <= 1)).all())
        if found and single:
            self._count += rows.numel()
            self._extremes |= {float(rows.min()), float(rows.max())}
            if self._count < ENOUGH or len(self._extremes) < 2:
                return
        elif found:
            found = bool(((rows.double().sum(-1) - 1).abs() <= tolerance).all())
        self.done = True
        range_, function = ("numbers in [0, 1]", "sigmoid") if single else ("rows in [0, 1] that sum to one", "softmax")
        if self.outputs is None and found:
            raise ArgumentError(
                f"{self.who} look like probabilities ({range_}), and were to be taken for logits: pass "
                f"outputs='probabilities' if the network ends in a {function}, or outputs='logits' if these are logits"
            )
        if self.outputs is not None and not found:
            what = f"{range_}{' of their exponentials' if self.outputs == 'log-probabilities' else ''}"
            raise ArgumentError(f"outputs={self.outputs!r}: {self.who} are none, expected {what}; or outputs='logits'")
