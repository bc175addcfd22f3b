"""The tasks: how a network's output on a batch becomes predictions and targets, and how several answer as one.

Of numbers, a prediction that is NaN covers no target; all other metrics are NaN if any prediction is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from subspaces.core import checks, ensemble, nested
from subspaces.core.outputs import OutputCheck, Outputs, prediction, to_log_pair, to_log_probabilities, to_outputs
from subspaces.errors import ArgumentError
from subspaces.evaluation import classification
from subspaces.evaluation.classification import Classes, log_mean
from subspaces.evaluation.metrics import METRICS, Metric, average, of_task
from subspaces.text import Catalogue, listed, one_of


@dataclass(frozen=True)
class Task:
    """What is predicted; derive from this for a task of your own.

    A network's output on a batch becomes *parts*, n of them with a target each (`parts`); parts of several members
    become one prediction (`combine`), which the task's metrics take.

    Example:
        >>> class Sentences(ss.Classification):  # batches are dicts with the classes under another name
        ...     def inputs(self, batch):
        ...         return (batch["words"],), {}
        ...     def target(self, batch):
        ...         return batch["topic"]
        >>> evaluation = ss.evaluate(net, test=[{"words": x, "topic": y}], task=Sentences())
    """

    name: ClassVar[str] = "task"
    averages: ClassVar[tuple[str, ...]] = ("outputs",)
    """How members may be averaged; the first is the usual way."""
    distances: ClassVar[tuple[Metric, ...]] = ()
    """How differently two predictions answer."""
    shown: ClassVar[tuple[str, ...]] = ()
    """The metrics that planes show and by which points are chosen, the most telling first; by default the first two."""
    keeps: ClassVar[bool] = False
    """Whether what is answered to each example is kept, as classes and confidences."""

    @property
    def metrics(self) -> list[Metric]:
        """What is measured."""
        return of_task(self.name)

    def inputs(self, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what of a batch goes into the network: all but the target of a tuple, or of a dict by keyword."""
        return nested.inputs(batch)

    def target(self, batch: Any) -> Any:
        """Return what is to be predicted: the last of a tuple, or the labels of a dict."""
        return nested.target(batch, "a Task of your own whose `target` finds it")

    def run(self, network: Any, batch: Any) -> Any:
        """Return a network's output on a batch."""
        args, named = self.inputs(batch)
        return nested.run(network, args, named, lambda: network(*args, **named))

    def check_output(self, output: Any, check: OutputCheck) -> None:
        """Refuse a network whose outputs are not what the task takes them for; called until `check` is done."""

    def parts(self, output: Any, target: Any) -> tuple[Any, Any]:
        """Return what a network says about each example, and the targets of these."""
        raise NotImplementedError

    def combine(self, members: Sequence[Any], average: str) -> Any:
        """Return the prediction of several networks, or of one, from their parts."""
        raise NotImplementedError


def _binary(logits: Tensor, labels: Tensor) -> bool:
    """Say whether labels are zeros and ones for one logit each, as those of `BCEWithLogitsLoss`."""
    return logits.shape[:1].numel() == logits.numel() == labels.numel() and bool(((labels == 0) | (labels == 1)).all())


SHAPES = {
    "examples": "[n, classes] for labels [n]",
    "tokens": "[batch, length, classes] for labels [batch, length]",
    "pixels": "[batch, classes, height, width] for labels [batch, height, width]",
}
"""What a network returns, by what is classified."""


@dataclass(frozen=True)
class Classification(Task):
    """Which of several classes: of an example, of each token, or of each pixel.

    Args:
        of: "examples" with logits [n, classes] (one logit is that of the second of two classes), "tokens" with
            [batch, length, classes], or "pixels" with [batch, classes, height, width].
        ignore: the label of what does not count.
        shift: for tokens, whether a network predicts the next one: its output at a place is for the label after it.
        outputs: what the network returns: "logits", "probabilities" (it ends in a softmax or sigmoid) or
            "log-probabilities". By default logits; a network whose first batch looks like probabilities is refused.

    Example:
        >>> task = ss.Classification("pixels", ignore=255)
        >>> task.name, [metric.name for metric in task.metrics][:2]
        ('pixels', ['accuracy', 'nll'])
    """

    of: Literal["examples", "tokens", "pixels"] = "examples"
    ignore: int = -100
    shift: bool = False
    outputs: Outputs | None = None

    averages: ClassVar[tuple[str, ...]] = ("probabilities", "logits")
    distances: ClassVar[tuple[Metric, ...]] = classification.DISTANCES
    shown: ClassVar[tuple[str, ...]] = ("accuracy", "nll")

    def __post_init__(self) -> None:
        one_of("of", self.of, SHAPES)
        checks.flag("shift", self.shift)
        checks.whole("ignore", self.ignore, -(2**63), 2**63 - 1, beside=", the label of what does not count")
        if self.outputs is not None:
            object.__setattr__(self, "outputs", to_outputs("outputs", self.outputs))

    @property
    def name(self) -> str:  # type: ignore[override]
        return "classification" if self.of == "examples" else self.of

    @property
    def keeps(self) -> bool:  # type: ignore[override]
        return self.of == "examples"  # tokens and pixels are too many

    def parts(self, output: Any, target: Any) -> tuple[Classes, Tensor]:
        """Return logits or log-probabilities [n, classes] and labels [n], without those that do not count."""
        logits = prediction(output)
        labels = nested.numbers(target, logits.device, "class numbers")
        if labels.is_complex() or (labels.is_floating_point() and not _binary(logits, labels)):
            raise ArgumentError(f"targets of dtype {labels.dtype}: expected class numbers, or task=Regression()")
        logits, labels = self._flat(logits, labels.long())
        counts = labels != self.ignore
        if self.of != "examples" or not bool(counts.all()):
            logits, labels = logits[counts], labels[counts]
        nested.check_classes(labels, logits.shape[1], "for a label that does not count pass Classification(ignore=…)")
        return Classes(ensemble.wide(logits)), labels

    def _flat(self, output: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs as log-probabilities, or logits, [n, classes], and labels [n]."""
        logits, shape, plain = output, tuple(labels.shape), self.outputs in (None, "logits")
        if self.of == "tokens" and logits.ndim == 3:
            if self.shift:
                logits, labels = logits[:, :-1], labels[:, 1:]
            logits, labels = logits.flatten(0, 1), labels.flatten()
        elif self.of == "pixels" and logits.ndim > 2:
            logits, labels = logits.movedim(1, -1).flatten(0, -2), labels.flatten()
        elif self.of == "examples":
            labels = labels.flatten() if labels.numel() == len(logits) else labels
            if self._is_single(logits):
                single = logits.flatten()
                if plain:
                    return torch.stack([torch.zeros_like(single), single], 1), labels
                return to_log_pair(ensemble.wide(single), self.outputs), labels
        if logits.ndim != 2 or labels.shape != logits.shape[:1]:
            others = " or ".join(f"of={name!r}" for name in SHAPES if name != self.of)
            raise ArgumentError(
                f"the network returns a tensor of shape {tuple(output.shape)} for labels of shape {shape}: expected "
                f"{SHAPES[self.of]} for a classification of {self.of}; pass task=Classification({others}), or a Task "
                "of your own"
            )
        return logits if plain else to_log_probabilities(logits, self.outputs), labels

    def check_output(self, output: Any, check: OutputCheck) -> None:
        found = prediction(output)
        if found.ndim:
            dim = 1 if self.of == "pixels" and found.ndim > 2 else -1
            check(found, dim, single=self._is_single(found))

    def _is_single(self, output: Tensor) -> bool:
        return self.of == "examples" and (output.ndim == 1 or (output.ndim == 2 and output.shape[1] == 1))

    def combine(self, members: Sequence[Classes], average: str = "probabilities") -> Classes:
        if len(classes := {member.logs.shape[1] for member in members}) > 1:
            raise ArgumentError(
                f"the networks return {listed(map(str, sorted(classes)))} logits: expected as many of all"
            )
        logits = torch.stack([member.logs for member in members]) if len(members) > 1 else members[0].logs[None]
        return Classes(log_mean(logits, average))  # type: ignore[arg-type]


# Numbers

INTERVAL = 0.9


class Normal:
    """What a network predicts: a mean [n, d], and a variance [n, d] where it has one."""

    def __init__(self, mean: Tensor, variance: Tensor | None = None) -> None:
        self.mean, self.variance = mean.double(), None if variance is None else variance.double()

    @property
    def broken(self) -> Tensor:
        unknown = self.mean.isnan() if self.variance is None else self.mean.isnan() | self.variance.isnan()
        return unknown.any(1).sum()

    def __len__(self) -> int:
        return len(self.mean)


def _negative_log_density(prediction: Normal, target: Tensor) -> Tensor | None:
    """Return ½ (log 2 pi sigma² + (y - mu)² / sigma²)."""
    if prediction.variance is None:
        return None
    squares = (target - prediction.mean).square()
    return (torch.log(2 * math.pi * prediction.variance) + squares / prediction.variance) / 2


def _covered(prediction: Normal, target: Tensor) -> Tensor | None:
    if prediction.variance is None:
        return None
    reach = math.sqrt(2) * torch.erfinv(torch.tensor(INTERVAL, dtype=torch.float64))
    return (target - prediction.mean).abs() <= reach.to(target.device) * prediction.variance.sqrt()


_metric = partial(Metric, tasks=("regression",), headline=True)
RMSE = average(lambda prediction, y: (y - prediction.mean).square(), torch.sqrt)
DENSITY = "mean negative log-density of the targets under the predicted normals"
COVERAGE = "share of the targets inside the predicted 90 % intervals; 90 % is right"
APART = "root of the mean squared difference between what two networks predict"

for _each in (
    _metric("rmse", "RMSE", "root of the mean squared error", **RMSE),
    _metric("mae", "MAE", "mean absolute error", **average(lambda prediction, y: (y - prediction.mean).abs())),
    _metric("gaussian_nll", "Gaussian NLL", DENSITY, **average(_negative_log_density)),
    _metric("interval_coverage", "coverage", COVERAGE, False, True, goal=INTERVAL, **average(_covered)),
):
    METRICS.add(_each)

DISTANCES = (Metric("difference", "difference", APART, **average(lambda p, q: (p.mean - q.mean).square(), torch.sqrt)),)


@dataclass(frozen=True)
class Regression(Task):
    """Numbers: a tensor like the targets, or (mean, variance), or an output with .mean and .variance.

    Args:
        log_variance: whether the network gives the logarithm of the variance.

    Example:
        >>> family = ss.Subspace(lambda: nn.Linear(5, 1), ss.Line())
        >>> evaluation = ss.evaluate(family, test=[(x, x.sum(1))], task=ss.Regression())
        >>> evaluation["midpoint"].rmse > 0
        True
    """

    log_variance: bool = False

    name: ClassVar[str] = "regression"
    averages: ClassVar[tuple[str, ...]] = ("mixture",)
    distances: ClassVar[tuple[Metric, ...]] = DISTANCES
    shown: ClassVar[tuple[str, ...]] = ("rmse", "mae")

    def __post_init__(self) -> None:
        checks.flag("log_variance", self.log_variance)

    def parts(self, output: Any, target: Any) -> tuple[Normal, Tensor]:
        mean, variance = ensemble.moments(output)
        if not isinstance(mean, Tensor):
            raise ArgumentError(f"the network returns a {type(output).__name__}: expected numbers, or (mean, variance)")
        goal = nested.numbers(target, mean.device, "numbers, of the shape of what the network returns")
        if mean.is_complex() or goal.is_complex() or bool(goal.isnan().any()):
            raise ArgumentError(
                f"the network returns {mean.dtype} for targets of {goal.dtype}: expected real numbers, no target NaN"
            )
        if mean.numel() != goal.numel() or not mean.ndim or mean.shape[:1] != goal.shape[:1]:
            raise ArgumentError(
                f"the network returns numbers of shape {tuple(mean.shape)} for targets of shape {tuple(goal.shape)}: "
                "expected the same; a network that also predicts a variance returns (mean, variance)"
            )
        mean, goal = (each.double().flatten(1) if each.ndim > 1 else each.double()[:, None] for each in (mean, goal))
        if not isinstance(variance, Tensor):
            return Normal(mean), goal
        variance = variance.double().reshape(mean.shape)
        return Normal(mean, variance.exp() if self.log_variance else variance), goal

    def combine(self, members: Sequence[Normal], average: str = "mixture") -> Normal:
        if len(members) == 1:
            return members[0]
        means, variances = torch.stack([each.mean for each in members]), [each.variance for each in members]
        known = [each for each in variances if each is not None]
        if len(known) < len(members):
            return Normal(means.mean(0))
        return Normal(*ensemble.mixture(means, torch.stack(known)))


TASKS: Catalogue[Task] = Catalogue(
    "task", [Classification(), Classification("tokens"), Classification("pixels"), Regression()]
)


def task_of(task: Task | str | None) -> Task:
    """Return a task, also by its name; by default the classification of examples."""
    if isinstance(task, Task):
        return task
    return TASKS.find("classification" if task is None else task)


def with_outputs(task: Task, outputs: Outputs | None) -> Task:
    """Return a task for networks that return logits, probabilities or log-probabilities."""
    if outputs is None:
        return task
    if not isinstance(task, Classification):
        raise ArgumentError(f"outputs={outputs!r}: the task is {task.name}; expected it with a classification only")
    return replace(task, outputs=to_outputs("outputs", outputs))
