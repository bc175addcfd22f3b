"""What a program returns: named tensors, of the outputs of one network or of several that answer together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, Literal

import torch
from torch import Tensor

from subspaces.core import checks, ensemble, nested
from subspaces.core.ensemble import Ensemble
from subspaces.core.outputs import OutputCheck, Outputs, prediction, to_log_pair, to_log_probabilities
from subspaces.errors import ArgumentError
from subspaces.evaluation.tasks import SHAPES, Classification, Regression, Task, task_of, with_outputs
from subspaces.export.errors import ExportError
from subspaces.export.inputs import named_tensors, unique

AS_THEY_ARE = "outputs"


@dataclass(frozen=True)
class Answer:
    """From the outputs of networks to named tensors.

    Args:
        task: a classification, whose answer are `probabilities` and of an ensemble `disagreement`; a regression, with
            `mean` and, where networks predict one, `variance`; None: outputs as they are, under names of their own.
        average: of an ensemble, as it averages; empty for one network.
        said: whether the user has named the task, so that one number for each example may be that of two classes.
    """

    task: Classification | Regression | None = Classification()
    average: str = ""
    said: bool = False

    @property
    def name(self) -> str:
        """The name of the task."""
        return AS_THEY_ARE if self.task is None else self.task.name

    @property
    def outputs(self) -> Outputs:
        """What the networks of a classification return."""
        return (isinstance(self.task, Classification) and self.task.outputs) or "logits"

    @property
    def dim(self) -> int:
        """The dimension of the classes."""
        return 1 if self.name == "pixels" else -1

    def of(self, ensemble: Ensemble) -> "Answer":
        """Return the answer of an ensemble of the user's own."""
        average, task = ensemble.average, self.task
        if isinstance(task, Classification):
            if average not in ("probabilities", "logits", "sigmoid"):
                raise ExportError(
                    f"an ensemble with average={average!r} has no probabilities of classes: expected one that averages "
                    f"'probabilities' or 'logits'; for its output as it is pass task={AS_THEY_ARE!r}, and for numbers "
                    "task='regression'"
                )
            if task.outputs is not None and ensemble.member_outputs not in (None, task.outputs):
                raise ArgumentError(
                    f"outputs={task.outputs!r}: the ensemble was told outputs={ensemble.member_outputs!r}; expected "
                    "the same"
                )
            task = replace(task, outputs=task.outputs or ensemble.member_outputs)
            return replace(self, task=task, said=self.said or average == "sigmoid", average=average)
        if task is not None and average not in ("outputs", "mixture"):
            raise ExportError(
                f"an ensemble with average={average!r} has no mean of numbers: expected 'mixture' or 'outputs' with "
                "task='regression'"
            )
        return replace(self, average=average)

    def __call__(self, outputs: Sequence[Any]) -> dict[str, Tensor]:
        if self.task is None:
            return _as_they_are(outputs[0])
        if isinstance(self.task, Regression):
            return _numbers(outputs, self.task.log_variance)
        found = [self._prediction(each) for each in outputs]
        each = torch.stack([self._probabilities(one) for one in found])  # [k, n, ...]
        if not self.average:
            return {"probabilities": each[0]}
        mean = ensemble.mean(each)
        if self.average == "logits":
            logits = ensemble.mean(torch.stack([self._logits(one) for one in found]))
            mean = ensemble.softmax(logits[None], self.dim)[0]
        disagreement = ensemble.uncertainty(each, self.dim).disagreement
        assert disagreement is not None
        return {"probabilities": mean, "disagreement": disagreement}

    def check(self, outputs: Sequence[Any]) -> None:
        """Refuse outputs of a first batch that are not what the task takes them for."""
        if isinstance(self.task, Classification):
            for each in map(self._prediction, outputs):
                OutputCheck(self.task.outputs)(each, self.dim, single=self._is_single(each))

    def taken_for(self, outputs: Sequence[Any]) -> Outputs | Literal[""]:
        """Return what networks say about each class; nothing of one number, or of no classes."""
        if isinstance(self.task, Classification) and not self._is_single(prediction(outputs[0])):
            return self.outputs
        return ""

    def _is_single(self, found: Tensor) -> bool:
        return self.name == "classification" and (found.ndim == 1 or (found.ndim == 2 and found.shape[1] == 1))

    def _prediction(self, output: Any) -> Tensor:
        """Return what a network says about each class, or about the second of two."""
        assert isinstance(self.task, Classification)
        expected = f"logits of shape {SHAPES[self.task.of].partition(' for')[0]} of two classes or more"
        instead = (
            f"; pass task={AS_THEY_ARE!r} for outputs as they are, 'regression', or 'tokens' or 'pixels' for classes"
        )
        found = prediction(output, expected + instead)
        if self._is_single(found):
            if self.said:
                return found
            instead += ", or outputs='logits' if it is the one logit of two classes"
        elif self.average == "sigmoid":
            instead = ", one for each example, as average='sigmoid' takes it; pass task='outputs' for several of them"
            raise ExportError(f"the members return a tensor of shape {tuple(found.shape)}: expected a logit{instead}")
        fits = {"examples": found.ndim == 2, "tokens": found.ndim == 3, "pixels": found.ndim > 2}[self.task.of]
        if not fits or found.shape[self.dim] < 2:
            raise ExportError(
                f"the network returns a tensor of shape {tuple(found.shape)}: expected {expected}{instead}"
            )
        return found

    def _logits(self, found: Tensor) -> Tensor:
        """Return what a softmax makes probabilities of."""
        if self._is_single(found):
            return to_log_pair(ensemble.wide(found.flatten()), self.outputs)
        return found if self.outputs == "logits" else to_log_probabilities(ensemble.wide(found), self.outputs, self.dim)

    def _probabilities(self, found: Tensor) -> Tensor:
        if self._is_single(found) or self.outputs == "logits":
            return ensemble.softmax(self._logits(found)[None], self.dim)[0]
        return ensemble.wide(found) if self.outputs == "probabilities" else ensemble.wide(found).exp()


def _numbers(outputs: Sequence[Any], log_variance: bool) -> dict[str, Tensor]:
    """Return mean and variance of numbers, those of the mixture of several networks, or means alone."""
    means, variances = [], []
    for output in outputs:
        mean, variance = ensemble.moments(output)
        if not isinstance(mean, Tensor) or not mean.is_floating_point():
            kind = f"tensor of {mean.dtype}" if isinstance(mean, Tensor) else type(output).__name__
            raise ExportError(f"the network returns a {kind}: expected numbers, or (mean, variance)")
        means.append(ensemble.wide(mean))
        if isinstance(variance, Tensor):
            if variance.numel() != mean.numel():
                raise ExportError(
                    f"the network returns tensors of shape {tuple(mean.shape)} and {tuple(variance.shape)}: expected "
                    f"numbers, or (mean, variance) of one shape; pass task={AS_THEY_ARE!r} for outputs as they are"
                )
            wide = ensemble.wide(variance).reshape(mean.shape)
            variances.append(wide.exp() if log_variance else wide)
    if len(means) == 1:
        return {"mean": means[0], **({"variance": variances[0]} if variances else {})}
    if len(variances) < len(means):
        return {"mean": ensemble.mean(torch.stack(means))}
    return ensemble.mixture(torch.stack(means), torch.stack(variances))._asdict()


def _as_they_are(output: Any) -> dict[str, Tensor]:
    """Return the tensors of an output by name: keys and fields, or `output_0` and so on for the members of a tuple."""
    named = isinstance(output, Mapping) or not isinstance(output, (tuple, list)) or hasattr(output, "_fields")
    found = list(named_tensors(output, "" if named and not isinstance(output, Tensor) else "output"))
    if not found or not _is_plain(output):
        raise ExportError(
            f"the network returns a {type(output).__name__}{' with other things than tensors' if found else ''}: "
            "expected tensors, or tuples, dicts or dataclasses of them; wrap it in a module that returns these"
        )
    return dict(zip(unique(name for name, _ in found), (each for _, each in found), strict=True))


def _is_plain(output: Any) -> bool:
    """Return whether an output holds tensors and None alone."""
    inner = nested.children(output)
    return isinstance(output, (Tensor, NoneType)) if inner is None else all(map(_is_plain, inner))


def answer_of(task: Task | str | None, outputs: Outputs | None) -> Answer:
    """Return the answer of a network for a task as a user names it; by default a classification of examples."""
    if isinstance(task, str) and task == AS_THEY_ARE:
        if outputs is not None:
            raise ArgumentError(f"outputs={checks.shown(outputs)}: expected it with a classification only")
        return Answer(None, said=True)
    found = with_outputs(task_of(task), outputs)
    if not isinstance(found, (Classification, Regression)):
        raise ArgumentError(
            f"task={checks.shown(task)}: expected Classification(…), Regression(…), or {AS_THEY_ARE!r} for outputs as "
            "the network returns them"
        )
    return Answer(found, said=task is not None or outputs is not None)
