"""Several networks whose outputs are averaged."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from subspaces.core import _compat, checks, nested
from subspaces.core.outputs import OutputCheck, Outputs, logits, to_log_pair, to_log_probabilities, to_outputs
from subspaces.errors import ArgumentError
from subspaces.text import one_of

Average = Literal["probabilities", "logits", "outputs", "sigmoid", "mixture"]


class Gaussian(NamedTuple):
    """A predicted mean, and the variance around it."""

    mean: Tensor
    variance: Tensor


class Prediction(NamedTuple):
    """The prediction of an ensemble and its uncertainty; see `Ensemble.predict`."""

    output: Any
    members: Any
    entropy: Tensor | None
    disagreement: Tensor


class Ensemble(nn.Module):
    """Average the outputs of several networks, in float32 at least. Each keeps its own batch-norm statistics.

    Args:
        members: the networks; they become submodules, not copies.
        average: what is averaged and returned.
            "probabilities": of classes, y = 1/k sum_i softmax(f_i(x)).
            "sigmoid": the probability of one logit, y = 1/k sum_i sigmoid(f_i(x)).
            "outputs", "logits": the mean of outputs as they are, y = 1/k sum_i f_i(x), of numbers or of classes.
            "mixture": `Gaussian(mean, variance)` of the mixture of members that predict these, as a pair, or as a
            dict or an object with these names: 1/k sum_i mu_i, and 1/k sum_i (sigma_i² + mu_i²) - mean².
        dim: the dimension of the classes in a member's output.
        select: takes the tensor that is averaged out of a member's output, for example `lambda output: output[0]`;
            for a mixture the mean and the variance. By default an output, or its `logits` where it has some.
        outputs: what the members return for "probabilities", "sigmoid" or "logits": "logits", "probabilities" or
            "log-probabilities". By default logits; what looks like probabilities at the first call is refused.

    Example:
        >>> pair = ss.Ensemble([net, other]).eval()
        >>> pair(x).shape, pair.outputs(x).shape
        (torch.Size([16, 3]), torch.Size([2, 16, 3]))
        >>> unsure = pair.predict(x).entropy > 1
    """

    def __init__(
        self,
        members: Iterable[nn.Module],
        average: Average = "probabilities",
        *,
        dim: int = -1,
        select: Callable[[Any], Any] | None = None,
        outputs: Outputs | None = None,
    ) -> None:
        super().__init__()
        found = checks.several("members", members, "a list of networks")
        self.members = nn.ModuleList(checks.all_of("Ensemble", found, (nn.Module,), "a list of one network or more"))
        if not checks.integer(dim):
            raise ArgumentError(f"dim={checks.shown(dim)}: expected an integer, the dimension of the classes")
        if select is not None:
            checks.function("select", select, "a function that takes what is averaged out of an output")
        one_of("average", average, get_args(Average))
        self.average, self.dim, self.select = average, dim, select
        self.member_outputs = None if outputs is None else to_outputs("outputs", outputs)
        if outputs is not None and average in ("outputs", "mixture"):
            raise ArgumentError(f"outputs={outputs!r}, average={average!r}: expected it with an average of classes")
        self._output_check = OutputCheck(self.member_outputs, "the members' outputs")

    def outputs(self, *args: Any, **kwargs: Any) -> Any:
        """Return what is averaged of every member, stacked: [k, batch, classes], or the `Gaussian` of these."""
        found = [self._taken(member(*args, **kwargs)) for member in self.members]
        if self.average == "mixture":
            return Gaussian(*(torch.stack(parts) for parts in zip(*found, strict=True)))
        for each in found:
            if each.shape != found[0].shape:
                shapes = f"{tuple(found[0].shape)} and {tuple(each.shape)}"
                raise ArgumentError(f"the members return tensors of shape {shapes}: expected the same from each")
        stacked = torch.stack(found)
        self._check(stacked, (args, kwargs))
        return stacked

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._mean(self.outputs(*args, **kwargs))

    def predict(self, *args: Any, **kwargs: Any) -> Prediction:
        """Run every member once, and return `Prediction(output, members, entropy, disagreement)`.

        `output` is what a call returns, `members` what `outputs` does. Of classes [batch, classes], in nats, [batch]:

            entropy         H[p] = - sum_c p_c log p_c of the mean p = 1/k sum_i p_i of the members' probabilities
            disagreement    H[p] - 1/k sum_i H[p_i], the mutual information of the answer and the member

        Of numbers, `disagreement` is the variance of the members' means, 1/k sum_i (mu_i - mu)², and `entropy` that of
        a Gaussian with the variance of the mixture, ½ log(2 pi e variance), or None.
        """
        members = self.outputs(*args, **kwargs)
        output = self._mean(members)
        if self.average == "mixture":
            of_gaussian = torch.log(2 * math.pi * math.e * output.variance) / 2
            return Prediction(output, members, of_gaussian, _spread(members.mean))
        if self.average == "outputs":
            return Prediction(output, members, None, _spread(members))
        if self.average == "sigmoid":
            probabilities, dim = to_log_pair(wide(members), self.member_outputs).exp(), -1
        else:
            if self.average == "logits":
                _check_classes(members, (args, kwargs))
            probabilities, dim = self._probabilities(wide(members)), self._class_dim(members)
        entropy: Tensor = torch.special.entr(probabilities.mean(0)).sum(dim)
        disagreement = entropy - torch.special.entr(probabilities).sum(dim).mean(0)
        return Prediction(output, members, entropy, disagreement.clamp(min=0))  # by rounding it may be below

    def _taken(self, output: Any) -> Any:
        """Return what is averaged of a member's output: a tensor, or a mean and a variance."""
        found = output if self.select is None else self.select(output)
        if self.average == "mixture":
            return _gaussian(found)
        found = logits(found) if self.select is None else found
        if not isinstance(found, Tensor) or not (found.is_floating_point() or found.is_complex()):
            kind = f"tensor of {found.dtype}" if isinstance(found, Tensor) else type(found).__name__
            who = "the members return" if self.select is None else "select= returns"
            raise ArgumentError(
                f"{who} a {kind}: expected one tensor of real or complex numbers, or an output with .logits; pass "
                "select=, for example lambda output: output[0], or average='mixture' for a mean and a variance"
            )
        return found

    def _check(self, stacked: Tensor, inputs: Any) -> None:
        """Refuse outputs that cannot be averaged as asked for."""
        if self.average == "probabilities":
            _check_classes(stacked, inputs)
            self._class_dim(stacked)
        plain = self.average == "outputs" or (self.average == "logits" and not self.member_outputs)  # a mean is one
        if not (plain or self._output_check.done or torch.compiler.is_compiling() or _compat.is_tracing()):
            single = self.average == "sigmoid"
            self._output_check(stacked, -1 if single else self._class_dim(stacked), single=single)

    def _mean(self, members: Any) -> Any:
        if self.average == "mixture":
            return mixture(*members)
        exact = wide(members)
        if self.average == "logits" and self.member_outputs:
            exact = to_log_probabilities(exact, self.member_outputs, self._class_dim(members))
        elif self.average in ("probabilities", "sigmoid"):
            exact = self._probabilities(exact)
        return exact.mean(0)

    def _probabilities(self, exact: Tensor) -> Tensor:
        """Return the probabilities of each member; of single numbers those of the second class."""
        if self.member_outputs == "probabilities":
            return exact
        if self.member_outputs == "log-probabilities":
            return exact.exp()
        if self.average == "sigmoid":
            return exact.sigmoid()
        return exact.softmax(self._class_dim(exact), dtype=exact.dtype)

    def _class_dim(self, stacked: Tensor) -> int:
        """Return where the classes lie in stacked outputs, from the end."""
        shape, dim = tuple(stacked.shape[1:]), self.dim
        if shape and not -len(shape) <= dim < len(shape):
            raise ArgumentError(f"dim={dim}: expected a dimension of what the members return, of shape {shape}")
        if not shape or shape[dim] == 1:
            raise ArgumentError(
                f"the members return a tensor of shape {shape}, and the softmax over dim={dim}, of size 1, is 1 for "
                "every input: pass average='outputs', 'mixture' or 'sigmoid' (of two classes), or another dim="
            )
        return dim - len(shape) if dim >= 0 else dim


def _check_classes(prediction: Tensor, inputs: Any) -> None:
    """Refuse one number for each example, where the softmax would go over the batch."""
    entered = nested.tensors(inputs)
    batch = entered[0].shape[0] if entered and entered[0].ndim > 1 else None  # len() makes it a constant in an export
    if prediction.shape[1:] == (batch,):
        raise ArgumentError(
            f"the members return a tensor of shape ({batch},) for a batch of {batch}: expected [batch, classes]; pass "
            "average='sigmoid' for the one logit of two classes, 'outputs' for numbers, or x[None] for one example"
        )


def _gaussian(output: Any) -> Gaussian:
    mean, variance = moments(output)
    if not isinstance(mean, Tensor) or not isinstance(variance, Tensor):
        raise ArgumentError(
            f"average='mixture': the members return a {type(output).__name__}: expected a mean and a variance, as a "
            "pair or under these names; pass select=, or average='outputs' for means alone"
        )
    if variance.numel() != mean.numel():
        raise ArgumentError(
            f"average='mixture': the members return a mean of shape {tuple(mean.shape)} and a variance of shape "
            f"{tuple(variance.shape)}: expected a variance for every mean; expand it in the network or with select="
        )
    return Gaussian(mean, variance.reshape(mean.shape))


def moments(output: Any) -> tuple[Any, Any]:
    """Return the mean and the variance that a network predicts, None for what it does not; a tensor is a mean."""
    if isinstance(output, Mapping):
        return output.get("mean"), output.get("variance")
    if not isinstance(output, Tensor) and hasattr(output, "mean"):
        return output.mean, getattr(output, "variance", None)
    if isinstance(output, (tuple, list)) and output:
        return output[0], output[1] if len(output) == 2 else None
    return output, None


def mixture(means: Tensor, variances: Tensor) -> Gaussian:
    """Return mean and variance of the mixture of k Gaussians, from theirs: [k, ...].

    mu = 1/k sum_i mu_i and 1/k sum_i (sigma_i² + mu_i²) - mu², as 1/k sum_i sigma_i² + 1/k sum_i (mu_i - mu)², which
    loses no digits where means are large.
    """
    return Gaussian(wide(means).mean(0), wide(variances).mean(0) + _spread(means))


def _spread(means: Tensor) -> Tensor:
    """Return the variance of the members around their mean: 1/k sum_i (mu_i - mu)²."""
    exact = wide(means)
    return (exact - exact.mean(0)).abs().square().mean(0)


def wide(value: Tensor) -> Tensor:
    """Return a tensor in float32 at least: three digits are too few for an average."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
