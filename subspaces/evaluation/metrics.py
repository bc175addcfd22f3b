"""The metrics: what each is called, what it means, which direction is better, and how it is computed.

A metric is computed batch by batch. Its `step` makes a tensor of a batch; the steps of all batches are added up, or
joined where the metric needs every example, and `value` makes the number of the result:

    metric = value(sum over batches of step(prediction, target))

Metrics that share a step share its work. Sums are in float64.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping
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
        >>> METRICS.add(Metric("top5", "top-5 accuracy", "share of examples with the right class among five",
        ...     lower_is_better=False, percent=True,
        ...     **average(lambda p, y: (p.probabilities.topk(5).indices == y[:, None]).any(1))))
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
    curve: tuple[str, Callable[[Tensor], Any]] | None = None  # what else a row holds, and what makes it of the same
    tasks: tuple[str, ...] = ("classification",)  # the names of those that it is for
    counter: Any = field(default=None, repr=False)  # counts instead of step and value, as those of torchmetrics do

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


def measured_by(usual: Iterable[Metric], more: Mapping[str, Any] | Iterable[Metric] | None) -> list[Metric]:
    """Return a task's metrics and those beside them: ours, or by name what has update, compute and reset."""
    if more is not None and not isinstance(more, Mapping):
        more = checks.several("metrics", more, "metrics by name, such as {'f1': torchmetrics.F1Score(…)}")
    beside = more.items() if isinstance(more, Mapping) else [(getattr(each, "name", ""), each) for each in more or ()]
    found = [*usual, *(_named(name, each) for name, each in beside)]
    names = [metric.name for metric in found]
    if not found:
        raise ArgumentError("the task has no metrics; give it some, or pass metrics=")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ArgumentError(f"metrics={{{twice[0]!r}: …}}: there is a metric of that name already; expected another")
    return found


def _named(name: str, found: Any) -> Metric:
    if isinstance(found, Metric):
        return found
    if not all(callable(getattr(found, part, None)) for part in ("update", "compute", "reset")):
        raise ArgumentError(
            f"metrics={{{name!r}: {checks.shown(found)}}}: expected a Metric, or one of torchmetrics such as "
            "{'f1': torchmetrics.F1Score('multiclass', num_classes=10)}"
        )
    higher = getattr(found, "higher_is_better", None)
    about = f"{type(found).__name__} of {type(found).__module__.partition('.')[0]}"
    return Metric(name, name.replace("_", " "), about, lower_is_better=not higher, headline=True, counter=found)


class Tally:
    """The metrics of one answer, over batches."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.metrics = list(metrics)
        self._counters = {each.name: copy.deepcopy(each.counter) for each in self.metrics if each.counter is not None}
        for counter in self._counters.values():
            counter.reset()
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
        for counter in self._counters.values():
            counter.to(target.device) if hasattr(counter, "to") else None
            counter.update(getattr(prediction, "plain", prediction), target)

    def _state(self, metric: Metric) -> Tensor | None:
        """Return what a metric's step came to over all batches; None where it does not apply."""
        found = None if metric.step is None else self._states.get(metric.step)
        return None if found is None else torch.cat(found) if len(found) > 1 else found[0]

    def curves(self) -> dict[str, Any]:
        """Return what a row holds beside its metrics."""
        states = ((each.curve, self._state(each)) for each in self.metrics if each.curve is not None)
        return {curve[0]: curve[1](state) for curve, state in states if state is not None}

    def values(self) -> dict[str, float]:
        """Return the metrics that apply, by name; one transfer from the device for all."""
        found: dict[str, Tensor] = {}
        for each in self.metrics:
            if each.counter is not None:
                value = torch.as_tensor(self._counters[each.name].compute())
                if value.numel() != 1:
                    raise ArgumentError(
                        f"{each.name} gives {value.numel()} numbers: expected one, such as its average over classes"
                    )
                value = value.reshape(()).double().cpu()
                found[each.name] = torch.full_like(value, math.nan) if self.broken else value  # what it makes of NaN
            elif (state := self._state(each)) is not None:
                found[each.name] = (each.value(state) if each.value is not None else state).double()
        return dict(zip(found, torch.stack(list(found.values())).tolist(), strict=True)) if found else {}


def tally(metrics: Iterable[Metric], batches: Iterable[tuple[Any, Any]]) -> dict[str, float]:
    """Return metrics over batches of predictions and targets."""
    made = Tally(metrics)
    for prediction, target in batches:
        made.add(prediction, target)
    return made.values()
