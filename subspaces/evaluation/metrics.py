"""The metrics: what each is called, what it means, which direction is better, and how it is computed.

A metric is computed batch by batch. Its `step` makes a tensor of a batch; the steps of all batches are added up, or
joined where the metric needs every example, and `value` makes the number of the result:

    metric = value(sum over batches of step(prediction, target))

Metrics that share a step share its work. Sums are in float64.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.text import Catalogue

Step = Callable[[Any, Any], Tensor | None]
"""Of a batch's prediction and target; None where the prediction does not have what it takes."""
SAVED = ("name", "label", "meaning", "lower_is_better", "percent", "headline", "goal")
"""What a file keeps of a metric."""


@dataclass(frozen=True)
class Metric:
    """One metric; everything that names, explains, orders or draws it is derived from here.

    Example:
        >>> from subspaces.evaluation import METRICS, average
        >>> top2 = METRICS.add(ss.Metric("top2", "top-2 accuracy", "share of examples with the right class among two",
        ...     lower_is_better=False, percent=True,
        ...     **average(lambda p, y: (p.probabilities.topk(2).indices == y[:, None]).any(1))))
        >>> ss.evaluate(net, test=loader)["midpoint"].top2 <= 1
        True
    """

    name: str  # in files, options and code
    label: str  # in tables and figures
    meaning: str  # what it is, in half a sentence
    lower_is_better: bool = True
    percent: bool = False  # a share, shown in percent
    headline: bool = False  # which stands in short tables
    goal: float | None = None  # the value that it should have, where neither more nor less is better
    step: Step | None = field(default=None, repr=False)  # makes a tensor of a batch
    value: Callable[[Tensor], Tensor] | None = field(default=None, repr=False)  # of what the steps add up to
    gathers: bool = False  # the steps are joined, [n, …], instead of added
    tasks: tuple[str, ...] = ("classification",)  # the names of those that it is for

    @property
    def scale(self) -> float:
        """What a value is multiplied with to be shown."""
        return 100.0 if self.percent else 1.0

    @property
    def digits(self) -> int:
        """The decimal places of a table."""
        return 2 if self.percent else 4

    @property
    def title(self) -> str:
        """The head of a table's column."""
        return f"{self.label} %" if self.percent else self.label

    @property
    def axis(self) -> str:
        """The label of a figure's axis."""
        return f"{self.label} (%)" if self.percent else self.label

    @property
    def described(self) -> "Metric":
        """The metric as a file keeps it, without what computes it."""
        return Metric(*(getattr(self, name) for name in SAVED))

    def merit(self, value: float) -> float:
        """Return a number that is larger the better a value is; NaN ranks last."""
        if math.isnan(value):
            return -math.inf
        if self.goal is not None:
            return -abs(value - self.goal)
        return -value if self.lower_is_better else value

    def shown(self, value: float) -> str:
        """Return a value as it stands in a table."""
        return f"{self.scale * value:.{self.digits}f}"

    def __call__(self, prediction: Any, target: Any) -> float:
        """Return the metric of one batch alone."""
        return tally([self], [(prediction, target)])[self.name]


METRICS: Catalogue[Metric] = Catalogue("metric")


def of_task(task: str) -> list[Metric]:
    """Return the metrics of a task."""
    return [each for each in METRICS.values() if task in each.tasks]


def average(
    each: Callable[[Any, Any], Tensor | None], then: Callable[[Tensor], Tensor] = lambda mean: mean
) -> dict[str, Any]:
    """Return step and value of the mean over examples of a function of predictions and targets, -> [n]."""

    def step(prediction: Any, target: Any) -> Tensor | None:
        found = each(prediction, target)
        if found is None:
            return None
        return torch.stack([found.double().sum(), found.new_tensor(found.numel(), dtype=torch.float64)])

    return {"step": step, "value": lambda sums: then(sums[0] / sums[1])}


def measured_by(usual: Iterable[Metric], more: Iterable[Metric] | None) -> list[Metric]:
    """Return a task's metrics and those beside them."""
    found = list(usual)
    for each in [] if more is None else checks.several("metrics", more, "a list of Metric"):
        if not isinstance(each, Metric):
            raise ArgumentError(f"metrics=[{checks.shown(each)}]: expected instances of subspaces.Metric")
        if any(each.name == one.name for one in found):
            raise ArgumentError(f"metrics=: another metric is called {each.name!r} already: expected another name")
        found.append(each)
    if not found:
        raise ArgumentError("the task has no metrics; give it some, or pass metrics=")
    return found


class Tally:
    """The metrics of one answer, over batches."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.metrics = list(metrics)
        self._joins = {each.step: each.gathers for each in self.metrics if each.step is not None}
        self._states: dict[Step, list[Tensor]] = {}
        self._broken = torch.zeros((), dtype=torch.int64)

    @property
    def broken(self) -> int:
        """How many of the predictions were NaN, where a prediction can say so."""
        return int(self._broken)

    def add(self, prediction: Any, target: Any) -> None:
        broken = getattr(prediction, "broken", None)
        if isinstance(broken, Tensor):
            self._broken = self._broken.to(broken.device) + broken
        for step, joins in self._joins.items():
            found = step(prediction, target)
            if found is not None:
                known = self._states.setdefault(step, [])
                known[:] = [*known, found] if joins or not known else [known[0] + found]

    def state(self, step: Step | None) -> Tensor | None:
        """Return what a step came to over all batches; None where it does not apply."""
        found = None if step is None else self._states.get(step)
        return None if found is None else torch.cat(found) if len(found) > 1 else found[0]

    def values(self) -> dict[str, float]:
        """Return the metrics that apply, by name; one transfer from the device for all."""
        found: dict[str, Tensor] = {}
        for each in self.metrics:
            if (state := self.state(each.step)) is not None:
                found[each.name] = (each.value(state) if each.value is not None else state).double()
        return dict(zip(found, torch.stack(list(found.values())).tolist(), strict=True)) if found else {}


def tally(metrics: Iterable[Metric], batches: Iterable[tuple[Any, Any]]) -> dict[str, float]:
    """Return metrics over batches of predictions and targets."""
    made = Tally(metrics)
    for prediction, target in batches:
        made.add(prediction, target)
    return made.values()
