"""What the outputs of a classifier are: logits, probabilities or log-probabilities."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from subspaces import averages, values
from subspaces.errors import ArgumentError
from subspaces.text import nearest

Outputs = Literal["logits", "probabilities", "log-probabilities"]
ENOUGH = 8
"""How many numbers in [0, 1], each alone, are no coincidence."""
TOLERANCE = 1e-3
"""How far the sum of a row of probabilities may be from one, by rounding; ten times as far in half precision."""


def to_outputs(name: str, value: Any) -> Outputs:
    """Return a kind of outputs that a user has named, with `-` or `_`."""
    known = get_args(Outputs)
    found = value.replace("_", "-") if isinstance(value, str) else value
    if found not in known:
        raise ArgumentError(f"{name}={values.shown(value)}: {nearest(str(found), known)}")
    return found  # type: ignore[return-value]


def prediction(output: Any, expected: str = "logits, or an output with .logits") -> Tensor:
    """Return the tensor in the output of a classifier that is its prediction: the `logits`, or the first of a tuple."""
    found = averages.logits(output)
    found = found[0] if isinstance(found, (tuple, list)) and found else found
    if not isinstance(found, Tensor) or not found.is_floating_point():
        kind = f"tensor of {found.dtype}" if isinstance(found, Tensor) else type(output).__name__
        raise ArgumentError(f"the network returns a {kind}: expected {expected}")
    return found


def are_probabilities(value: Tensor, dim: int = -1, *, single: bool = False) -> bool:
    """Return whether all rows along `dim` lie in [0, 1] and sum to one; with `single`, whether all lie in [0, 1].

    Args:
        value: the outputs of a batch, of which NaN is no probability.
        dim: the dimension of the classes.
        single: whether each number stands alone: the second of two classes.
    """
    if not value.numel():
        return False
    exact = value.detach().double()
    inside = bool(((exact >= 0) & (exact <= 1)).all())
    if single or not inside:
        return inside
    tolerance = TOLERANCE if value.dtype in (torch.float32, torch.float64) else 10 * TOLERANCE
    return bool(((exact.sum(dim) - 1).abs() <= tolerance).all())


def check_first(value: Tensor, outputs: Outputs | None, who: str, dim: int = -1, *, single: bool = False) -> None:
    """Refuse the outputs of a first batch that are not what they are taken for.

    Args:
        value: the outputs.
        outputs: what the user says that they are; None: nothing, and they are taken for logits.
        who: whose outputs they are, for the error.
        dim: the dimension of the classes.
        single: whether each number stands alone: the second of two classes.
    """
    range_, function = ("numbers in [0, 1]", "sigmoid") if single else ("rows in [0, 1] that sum to one", "softmax")
    if outputs is None and (not single or value.numel() >= ENOUGH) and are_probabilities(value, dim, single=single):
        raise ArgumentError(
            f"{who} look like probabilities ({range_}), and were to be taken for logits: pass outputs='probabilities' "
            f"if the network ends in a {function}, or outputs='logits' if these are logits"
        )
    given = value.exp() if outputs == "log-probabilities" else value
    if outputs in (None, "logits") or not given.isfinite().all() or are_probabilities(given, dim, single=single):
        return
    raise ArgumentError(
        f"outputs={outputs!r}: {who} are none, expected {range_}"
        f"{' of their exponentials' if given is not value else ''}; pass outputs='logits' for logits"
    )


def to_log_probabilities(value: Tensor, outputs: Outputs | None, dim: int = -1) -> Tensor:
    """Return log-probabilities, from outputs whose classes lie along `dim`."""
    if outputs == "probabilities":
        return value.log()
    return value if outputs == "log-probabilities" else F.log_softmax(value, dim)


def to_log_pair(value: Tensor, outputs: Outputs | None) -> Tensor:
    """Return log(1 - p) and log p of outputs that each stand for the second of two classes: [...] -> [..., 2]."""
    if outputs == "probabilities":
        pair = torch.log1p(-value), value.log()
    elif outputs == "log-probabilities":
        pair = torch.log(-torch.expm1(value)), value
    else:
        pair = F.logsigmoid(-value), F.logsigmoid(value)
    return torch.stack(pair, -1)
