"""Several networks whose outputs are averaged."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from subspaces.core import _compat, checks, nested
from subspaces.core._compat import pytree
from subspaces.core.outputs import OutputCheck, Outputs, logits, to_log_pair, to_log_probabilities, to_outputs
from subspaces.errors import ArgumentError
from subspaces.text import one_of

Average = Literal["probabilities", "logits", "outputs", "sigmoid", "mixture"]
SELECT = (
    "pass select=, a function that takes a tensor, or a tuple, list or dict of tensors, out of an output, "
    "for example select=lambda output: output[0]"
)
_PLAIN = (type(None), bool, int, str, bytes)  # they have no average, and are returned where all members agree


class Gaussian(NamedTuple):
    """A predicted mean, and the variance around it."""

    mean: Tensor
    variance: Tensor


class Prediction(NamedTuple):
    """The prediction of an ensemble and its uncertainty; see `Ensemble.predict`."""

    output: Any
    members: Any
    entropy: Any
    disagreement: Any


class Ensemble(nn.Module):
    """Average the outputs of several networks.

    Averages are taken in float32 at least. Each member keeps its own batch-norm statistics.

    Args:
        members: the networks; they become submodules, not copies.
        average: what is averaged and returned.
            "probabilities": of classes, y = 1/k sum_i softmax(f_i(x)).
            "sigmoid": the probability of one logit, y = 1/k sum_i sigmoid(f_i(x)).
            "outputs": the mean of outputs as they are, y = 1/k sum_i f_i(x), for example of a regression; "logits" is
            the same, and says that they are those of classes.
            "mixture": `Gaussian(mean, variance)` of the mixture of members that predict a mean and a variance, as
            a pair, or as a dict or an object with these names. 1/k sum_i mu_i, and
            1/k sum_i (sigma_i² + mu_i²) - mean².
        dim: the dimension of the classes in a member's output.
        select: takes what is averaged out of a member's output, for example `lambda output: output[0]`, or
            `lambda output: (output.mean, output.log_variance.exp())` for a mixture.
        outputs: what the members return for "probabilities", "sigmoid" or "logits": "logits", "probabilities" or
            "log-probabilities". By default logits; what looks like probabilities at the first call is refused.
        output: what a call returns of averaged probabilities: "probabilities", or "log-probabilities",
            log 1/k sum_i p_i, which `nll_loss` and `cross_entropy` take.

    Example:
        >>> pair = Ensemble([net, other]).eval()
        >>> pair(x), pair.predict(x).entropy
    """

    def __init__(
        self,
        members: Iterable[nn.Module],
        average: Average = "probabilities",
        *,
        dim: int = -1,
        select: Callable[[Any], Any] | None = None,
        outputs: Outputs | None = None,
        output: Literal["probabilities", "log-probabilities"] = "probabilities",
    ) -> None:
        super().__init__()
        found = checks.several("members", members, "a list of networks")
        self.members = nn.ModuleList(checks.all_of("Ensemble", found, (nn.Module,), "a list of one network or more"))
        if not checks.integer(dim):
            raise ArgumentError(f"dim={checks.shown(dim)}: expected an integer, the dimension of the classes")
        if select is not None:
            checks.function("select", select, "a function that takes what is averaged out of an output")
        one_of("average", average, get_args(Average))
        self.average = average
        self.dim = dim
        self.select = select
        self.member_outputs = None if outputs is None else to_outputs("outputs", outputs)
        self.output = to_outputs("output", output)
        if outputs is not None and average in ("outputs", "mixture"):
            raise ArgumentError(
                f"outputs={outputs!r}, average={average!r}: expected outputs= with an average of classes only, "
                "'probabilities', 'sigmoid' or 'logits'"
            )
        if self.output == "logits" or (self.output != "probabilities" and average not in ("probabilities", "sigmoid")):
            raise ArgumentError(
                f"output={output!r}, average={average!r}: expected 'probabilities', or 'log-probabilities' with "
                "average='probabilities' or 'sigmoid'"
            )
        self._output_check = OutputCheck(self.member_outputs, "the members' outputs")

    def outputs(self, *args: Any, **kwargs: Any) -> Any:
        """Return what is averaged of every member, stacked: [k, batch, classes]."""
        outputs = [member(*args, **kwargs) for member in self.members]
        if self.select is not None:
            outputs = [self.select(output) for output in outputs]
        if self.average == "mixture":
            return _stacked([_gaussian(output) for output in outputs])
        if self.select is None:
            outputs = [logits(output) for output in outputs]
        if not nested.tensors(outputs[0]):
            raise ArgumentError(
                f"{'the members return' if self.select is None else 'select= returns'} a {type(outputs[0]).__name__}: "
                f"{SELECT}; for an object with .mean and .variance pass average='mixture'"
            )
        return _stacked(outputs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        outputs = self.outputs(*args, **kwargs)
        if self.average == "mixture":
            return mixture(*outputs)
        self._check(outputs, (args, kwargs))
        return _each(self._mean, outputs)

    def predict(self, *args: Any, **kwargs: Any) -> Prediction:
        """Run every member once, and return `Prediction(output, members, entropy, disagreement)`.

        `output` is what a call returns, `members` what `outputs` does. Of classes [batch, classes], in nats, [batch]:

            entropy         H[p] = - sum_c p_c log p_c of the mean p = 1/k sum_i p_i of the members' probabilities
            disagreement    H[p] - 1/k sum_i H[p_i], the mutual information of the answer and the member

        Of numbers, for each of them:

            entropy         ½ log(2 pi e variance), that of a Gaussian with the variance of the mixture; else None
            disagreement    the variance of the members' means, 1/k sum_i (mu_i - mu)²

        Where the output is a container, so are both.
        """
        members = self.outputs(*args, **kwargs)
        if self.average == "mixture":
            output = mixture(*members)
            entropy = torch.log(2 * math.pi * math.e * output.variance) / 2
            return Prediction(output, members, entropy, _spread(members.mean))
        self._check(members, (args, kwargs))
        if self.average == "logits" and isinstance(members, Tensor):
            _check_classes(members, (args, kwargs))
        averaged = _each(self._mean, members)
        return Prediction(averaged, members, _each(self._entropy, members), _each(self._disagreement, members))

    def _check(self, outputs: Any, inputs: Any) -> None:
        """Refuse stacked outputs that cannot be averaged as asked for."""
        if self.average == "outputs":
            return
        found = [each for each in nested.tensors(outputs) if _is_prediction(each, outputs)]
        if len(found) > 1:
            shapes = ", ".join(str(tuple(each.shape[1:])) for each in found)
            raise ArgumentError(
                f"the members return {len(found)} floating-point tensors, of shapes {shapes}, and average="
                f"{self.average!r} is for one prediction: pass select=, for example lambda output: output[0], or "
                "average='outputs' to average them all as they are"
            )
        if found and self.average == "probabilities":
            _check_classes(found[0], inputs)
        if torch.compiler.is_compiling() or self._output_check.done or _compat.is_tracing():
            return
        if found and (self.average != "logits" or self.member_outputs):  # a mean of logits is one, whatever they are
            single = self.average == "sigmoid"
            self._output_check(found[0], -1 if single else _class_dim(found[0], self.dim), single=single)

    def _mean(self, stacked: Tensor, prediction: bool) -> Tensor:
        """Return the average of one tensor of every member, [k, ...]."""
        if not prediction or self.average == "outputs" or (self.average == "logits" and not self.member_outputs):
            return _mean(stacked)
        if self.average == "logits" or self.output == "log-probabilities":
            logs = self._log_probabilities(stacked)
            return _mean(logs) if self.average == "logits" else logs.logsumexp(0) - math.log(len(logs))
        return _mean(self._probabilities(stacked))

    def _log_probabilities(self, stacked: Tensor) -> Tensor:
        exact = wide(stacked)
        if self.average == "sigmoid":
            return to_log_pair(exact, self.member_outputs)[..., 1]
        return to_log_probabilities(exact, self.member_outputs, _class_dim(stacked, self.dim))

    def _probabilities(self, stacked: Tensor) -> Tensor:
        """Return the probabilities of each member; of single numbers those of the second class."""
        exact = wide(stacked)
        if self.member_outputs == "probabilities":
            return exact
        if self.member_outputs == "log-probabilities":
            return exact.exp()
        if self.average == "sigmoid":
            return exact.sigmoid()
        return exact.softmax(_class_dim(stacked, self.dim), dtype=exact.dtype)

    def _entropy(self, stacked: Tensor, prediction: bool) -> Tensor | None:
        if not prediction or self.average == "outputs":
            return None
        probabilities, dim = self._classes(stacked)
        return _entropy(probabilities.mean(0), dim)

    def _disagreement(self, stacked: Tensor, prediction: bool) -> Tensor | None:
        if not prediction or self.average == "outputs":
            return _spread(stacked) if stacked.is_floating_point() else None
        probabilities, dim = self._classes(stacked)
        difference = _entropy(probabilities.mean(0), dim) - _entropy(probabilities, dim).mean(0)
        return difference.clamp(min=0)  # by rounding it may be below

    def _classes(self, stacked: Tensor) -> tuple[Tensor, int]:
        """Return the probabilities of all classes of each member, and where these lie, from the end."""
        if self.average == "sigmoid":
            return to_log_pair(wide(stacked), self.member_outputs).exp(), -1
        return self._probabilities(stacked), self.dim - stacked.ndim + 1 if self.dim >= 0 else self.dim

    def extra_repr(self) -> str:
        return f"average={self.average!r}"


def _is_prediction(stacked: Tensor, outputs: Any) -> bool:
    """Return whether a tensor of stacked outputs is a prediction, and not a scalar such as a loss beside one."""
    return stacked.is_floating_point() and (stacked is outputs or stacked.ndim > 1)


def _each(function: Callable[[Tensor, bool], Any], outputs: Any) -> Any:
    """Apply a function to every tensor of stacked outputs, and pass it whether that is a prediction."""
    return nested.apply(lambda stacked: function(stacked, _is_prediction(stacked, outputs)), outputs)


def _check_classes(prediction: Tensor, inputs: Any) -> None:
    """Refuse one number for each example, where the softmax would go over the batch."""
    entered = nested.tensors(inputs)
    batch = entered[0].shape[0] if entered and entered[0].ndim > 1 else None  # len() makes it a constant in an export
    if prediction.shape[1:] == (batch,):
        raise ArgumentError(
            f"the members return a tensor of shape ({batch},) for a batch of {batch}: expected [batch, classes]; pass "
            "average='sigmoid' for the one logit of two classes, 'outputs' for numbers, or x[None] for one example"
        )


def _class_dim(stacked: Tensor, dim: int) -> int:
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


def _gaussian(output: Any) -> Gaussian:
    mean, variance = moments(output)
    if not isinstance(mean, Tensor) or not isinstance(variance, Tensor):
        raise ArgumentError(
            f"average='mixture': the members return a {type(output).__name__}: expected a mean and a variance, as a "
            "pair, or as a dict or an object with these names; pass select=, a function that takes them out of "
            "an output, or average='outputs' for means alone"
        )
    if variance.numel() != mean.numel():
        raise ArgumentError(
            f"average='mixture': the members return a mean of shape {tuple(mean.shape)} and a variance of shape "
            f"{tuple(variance.shape)}: expected a variance for every mean; expand it in the network or with select="
        )
    return Gaussian(mean, variance.reshape(mean.shape))


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


# Averages of outputs, stacked as [k, ...]


def _stacked(outputs: list[Any]) -> Any:
    """Return outputs of one form as one, with each tensor in it stacked: [k, ...]."""
    forms = [_form(output) for output in outputs]
    for form in forms:
        if form != forms[0]:
            raise ArgumentError(f"the members return {forms[0]} and {form}: expected the same from each; {SELECT}")
    flat = [pytree.tree_flatten(output) for output in outputs]
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    return pytree.tree_unflatten([_stacked_leaves(column) for column in columns], flat[0][1])


def _stacked_leaves(leaves: Sequence[Any]) -> Any:
    if isinstance(leaves[0], Tensor):
        return torch.stack(list(leaves))
    return torch.tensor(leaves, dtype=torch.float64) if isinstance(leaves[0], float) else leaves[0]


def _form(output: Any) -> str:
    """Describe what the outputs of all members must have in common."""
    parts = []
    for path, leaf in pytree.tree_flatten_with_path(output)[0]:
        if not isinstance(leaf, (Tensor, float, *_PLAIN)):
            raise ArgumentError(f"the members return a {type(leaf).__name__}, which has no average: {SELECT}")
        shape = f"a tensor of shape {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else repr(leaf)
        parts.append(f"{pytree.keystr(path)} {'a float' if isinstance(leaf, float) else shape}".strip())
    return parts[0] if len(parts) == 1 and not path else f"a {type(output).__name__} of {', '.join(parts)}"


def _mean(stacked: Tensor) -> Tensor:
    """Return the mean of the members in float32 at least; whole numbers as they are, where all members agree."""
    if stacked.is_floating_point() or stacked.is_complex():
        return wide(stacked).mean(0)
    if not bool((stacked == stacked[0]).all()):
        raise ArgumentError(
            f"the members return whole numbers ({stacked.dtype}, of shape {tuple(stacked.shape[1:])}) that differ, and "
            f"these have no average: {SELECT}"
        )
    return stacked[0]


def _entropy(probabilities: Tensor, dim: int) -> Tensor:
    found: Tensor = torch.special.entr(probabilities)
    return found.sum(dim)


def _spread(means: Tensor) -> Tensor:
    """Return the variance of the members around their mean: 1/k sum_i (mu_i - mu)²."""
    exact = wide(means)
    return (exact - exact.mean(0)).abs().square().mean(0)


def mixture(means: Tensor, variances: Tensor) -> Gaussian:
    """Return mean and variance of the mixture of k Gaussians, from theirs: [k, ...].

    mu = 1/k sum_i mu_i and 1/k sum_i (sigma_i² + mu_i²) - mu², as 1/k sum_i sigma_i² + 1/k sum_i (mu_i - mu)², which
    loses no digits where means are large.
    """
    return Gaussian(_mean(means), _mean(variances) + _spread(means))


def wide(value: Tensor) -> Tensor:
    """Return a tensor in float32 at least: three digits are too few for an average."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
