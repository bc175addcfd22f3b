"""How the outputs of several networks become one: functions of what they return, stacked as [k, ...]."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subspaces.core import checks, nested
from subspaces.errors import ArgumentError

PLAIN = (type(None), bool, int, str, bytes)
"""What is no number to average, and is taken as it is where all members agree."""
SELECT = (
    "pass select=, a function that takes a tensor, or a tuple, list, dict or dataclass of tensors, out of an output, "
    "for example select=lambda output: output[0]"
)


class Gaussian(NamedTuple):
    """A predicted mean, and the variance around it."""

    mean: Tensor
    variance: Tensor


def moments(output: Any) -> tuple[Any, Any]:
    """Return the mean and the variance that a network predicts, None for what it does not.

    They are those of a dict or an object with these names, or the two of a pair; a tensor is a mean.
    """
    if isinstance(output, Mapping):
        return output.get("mean"), output.get("variance")
    if not isinstance(output, Tensor) and hasattr(output, "mean"):
        return output.mean, getattr(output, "variance", None)
    if isinstance(output, (tuple, list)) and output:
        return output[0], output[1] if len(output) == 2 else None
    return output, None


def logits(output: Any) -> Any:
    """Return the tensor that an output has under the name `logits`, or the output itself."""
    found = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    return found if isinstance(found, Tensor) else output


def stack(outputs: list[Any]) -> Any:
    """Return outputs of one form as one, with each tensor in it stacked: [k, ...]."""
    first, forms = outputs[0], [_form(output) for output in outputs]
    for output, form in zip(outputs, forms, strict=True):
        if form != forms[0]:
            raise ArgumentError(
                f"the members return {_shown(first)} and {_shown(output)}: expected the same from each; {SELECT}"
            )
    if isinstance(first, Tensor):
        return torch.stack(outputs)
    if isinstance(first, float):
        return torch.tensor(outputs, dtype=torch.float64)
    inner = nested.children(first)
    if inner is None:
        return first
    columns = zip(*(nested.children(output) or [] for output in outputs), strict=True)
    return nested.rebuild(first, [stack(list(column)) for column in columns])


def _form(value: Any) -> Any:
    """Return what the outputs of all members must have in common."""
    if isinstance(value, Tensor):
        return value.shape
    if isinstance(value, Mapping):
        return type(value), list(value)
    if isinstance(value, (tuple, list)):
        return type(value), len(value)
    if isinstance(value, float) or dataclasses.is_dataclass(value):
        return type(value)
    if not isinstance(value, PLAIN):
        raise ArgumentError(f"the members return a {type(value).__name__}, which has no average: {SELECT}")
    return type(value), value


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} of {', '.join(map(checks.shown, value)) or 'nothing'}"
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, (tuple, list)) else checks.shown(value)


def mean(stacked: Tensor) -> Tensor:
    """Return the mean of the members in float32 at least; whole numbers as they are, where all members agree."""
    if stacked.is_floating_point() or stacked.is_complex():
        return wide(stacked).mean(0)
    if not bool((stacked == stacked[0]).all()):
        raise ArgumentError(
            f"the members return whole numbers ({stacked.dtype}, of shape {tuple(stacked.shape[1:])}) that differ, and "
            f"these have no average: {SELECT}"
        )
    return stacked[0]


def wide(value: Tensor) -> Tensor:
    """Return a tensor in float32 at least: three digits are too few for an average."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def class_dim(stacked: Tensor, dim: int) -> int:
    """Return where the classes lie in stacked outputs, from `dim`, where they lie in those of one member."""
    shape = tuple(stacked.shape[1:])
    if shape and not -len(shape) <= dim < len(shape):
        raise ArgumentError(
            f"dim={dim}: expected a dimension of what the members return, of shape {shape}; pass another"
        )
    if not shape or shape[dim] == 1:
        raise ArgumentError(
            f"the members return a tensor of shape {shape}, and the softmax over dim={dim}, of size 1, is 1 for every "
            "input: pass average='outputs' for numbers, 'mixture' for a mean and a variance, 'sigmoid' for the one "
            "logit of two classes, or another dim="
        )
    return dim + 1 if dim >= 0 else dim


def softmax(stacked: Tensor, dim: int) -> Tensor:
    """Return the probabilities of each member, where `dim` is the dimension of the classes in one member's logits."""
    exact = wide(stacked)
    return exact.softmax(class_dim(stacked, dim), dtype=exact.dtype)


def mixture(means: Tensor, variances: Tensor) -> Gaussian:
    """Return mean and variance of the mixture of k Gaussians, from theirs: [k, ...].

    mu = 1/k sum_i mu_i and 1/k sum_i (sigma_i² + mu_i²) - mu², as 1/k sum_i sigma_i² + 1/k sum_i (mu_i - mu)², which
    loses no digits where means are large.
    """
    mu = mean(means)
    return Gaussian(mu, mean(variances) + spread(means))


def spread(means: Tensor) -> Tensor:
    """Return the variance of the members around their mean: 1/k sum_i (mu_i - mu)²."""
    exact = wide(means)
    return (exact - exact.mean(0)).abs().square().mean(0)


class Doubt(NamedTuple):
    """How unsure an ensemble is, and how much of that is because its members differ."""

    entropy: Tensor | None
    disagreement: Tensor | None


def doubt(probabilities: Tensor, dim: int) -> Doubt:
    """Return H[p] of the mean p = 1/k sum_i p_i, and H[p] - 1/k sum_i H[p_i], where H[p] = - sum_c p_c log p_c.

    `dim` is the dimension of the classes in one member's probabilities.
    """
    last = dim - probabilities.ndim + 1 if dim >= 0 else dim
    total = torch.special.entr(probabilities.mean(0)).sum(last)
    within = torch.special.entr(probabilities).sum(last).mean(0)
    return Doubt(total, (total - within).clamp(min=0))  # by rounding it may be below
