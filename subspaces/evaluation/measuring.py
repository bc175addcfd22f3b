"""The one loop that runs networks over data, and the accumulators of their predictions.

Those of outliers are scores, higher for examples like those of the test set. AUROC is the probability that a test
example has a higher score than an outlier, and FPR95 the share of outliers that are taken for test examples by the
highest threshold that keeps 95 % of these.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subspaces.errors import ArgumentError
from subspaces.evaluation.classification import Classes, in_bins, log_mean, temperature, to_reliability
from subspaces.evaluation.metrics import Metric, Tally
from subspaces.evaluation.points import Item, Place, to_place
from subspaces.evaluation.predictor import Outputs, Predictor
from subspaces.evaluation.rows import KEPT, About, to_predictions
from subspaces.evaluation.tasks import Task

FITTED = 10_000  # validation examples to which a temperature is fitted, at most
NUMBERS = 2**22  # of a network's outputs that wait for their metrics


class Data(NamedTuple):
    """Examples on which networks are measured: a split (by its name alone), shifted data or outliers."""

    name: str
    batches: Callable[[], Iterable[Any]] | None = None
    severity: int = 0
    group: str = ""
    source: str = ""

    @property
    def key(self) -> dict[str, Any]:
        """The fields that identify it."""
        return {"data": self.name, "severity": self.severity, "group": self.group, "source": self.source}


@torch.no_grad()
def measure(
    predictor: Predictor,
    points: Sequence[Any],
    data: Data,
    wanted: Sequence["Metrics | Scores"],
    *,
    joined: bool = False,
    **how: Any,
) -> int:
    """Run networks over data and add their predictions to accumulators; return the number of examples.

    Each accumulator in `wanted` has the numbers of its members among the networks at `points`. `joined`: join small
    batches first, which is faster for cheap networks. `how` are further arguments of `Predictor.outputs`.
    """
    count = 0
    outputs = predictor.outputs(points, data.name if data.batches is None else data.batches(), **how)
    for batch in _in_large_parts(outputs) if joined else outputs:
        size = len(batch.predicted((0,)))
        if size:  # else all labels of the batch are ignored
            for one in wanted:
                one.add(batch)
            count += size
    if not count:
        raise ArgumentError(f"the {data.name} loader has no examples: expected at least one batch")
    return count


def _in_large_parts(outputs: Iterable[Outputs]) -> Iterator[Outputs]:
    waiting: list[Outputs] = []
    for each in outputs:
        waiting.append(each)
        first = each.members[0]
        if not isinstance(first, Classes) or len(waiting) * first.logs.numel() >= NUMBERS:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(several: Sequence[Outputs]) -> Outputs:
    if len(several) == 1:
        return several[0]
    members = zip(*(each.members for each in several), strict=True)
    whole: list[Any] = [Classes(torch.cat([part.logs for part in parts])) for parts in members]
    return Outputs(several[0].task, whole, torch.cat([each.target for each in several]))


def members_of(items: Sequence[Item], averages: Sequence[str]) -> tuple[list[Place], list[tuple[About, list[int]]]]:
    """Return the points of items, and the rows to measure with the numbers of their members among the points."""
    points = list(dict.fromkeys(place for item in items for place in item.places))
    rows = [about for item in items for about in item.rows(averages)]
    return points, [(about, [points.index(to_place(alpha)) for alpha in about.alphas]) for about in rows]


class Metrics:
    """Accumulate the metrics of a point, or of an ensemble of the networks with the numbers in `members`.

    With a `task`, as on a split, also the diversity of the members, curves, and the predictions of a point. With a
    `temperature` also the metrics of the scaled predictions; with `fits` the temperature that fits best.
    """

    def __init__(
        self,
        about: About,
        members: Sequence[int],
        metrics: Sequence[Metric],
        task: Task | None = None,
        fits: bool = False,
        temperature: float | None = None,
    ) -> None:
        self.about, self.members, self.temperature, self._fits = about, members, temperature, fits
        self.tally, self._scaled, self._on_split = Tally(metrics), Tally(metrics), task is not None
        self._keeps = task is not None and task.keeps and about.kind == "point"
        distances = task.distances if task is not None and about.average == task.averages[0] else ()
        pairs = itertools.combinations(members, 2) if distances else ()
        self._pairs = [(pair, Tally(distances)) for pair in pairs]
        self._fitted: list[tuple[Tensor, Tensor]] = []  # log-probabilities and labels
        self._kept: list[tuple[Tensor, Tensor]] = []

    def add(self, batch: Outputs) -> None:
        """Add a batch."""
        prediction, target = batch.predicted(self.members, self.about.average), batch.target
        self.tally.add(prediction, target)
        for (first, second), tally in self._pairs:
            tally.add(batch.predicted((first,)), batch.predicted((second,)))
        if self.temperature is not None:
            self._scaled.add(prediction.scaled(self.temperature), target)
        if self._fits and sum(len(labels) for _, labels in self._fitted) < FITTED:
            self._fitted.append((prediction.logs.float(), target))  # of which many are kept
        if self._keeps and sum(len(labels) for _, labels in self._kept) < KEPT:
            self._kept.append((to_predictions(*prediction.top), target.cpu()))

    @property
    def broken(self) -> int:
        """How many of the predictions are NaN."""
        return self.tally.broken

    def found(self) -> dict[str, Any]:
        """Return the entries of a row."""
        made: dict[str, Any] = {"metrics": self.tally.values()}
        if self._on_split and (bins := self.tally.state(in_bins)) is not None:
            made["reliability"] = to_reliability(bins)
        if self.temperature is not None:
            made["scaled"] = self._scaled.values() | {"temperature": self.temperature}
        return made

    def diversity(self) -> dict[str, float] | None:
        """Return the mean distances between two members; None without pairs."""
        found = [tally.values() for _, tally in self._pairs]
        return {name: sum(one[name] for one in found) / len(found) for name in found[0]} if found else None

    def fitted(self) -> float:
        """Return the temperature that fits best."""
        logs, target = (torch.cat(values)[:FITTED] for values in zip(*self._fitted, strict=True))
        return temperature(logs, target)

    def kept(self) -> tuple[Tensor, Tensor] | None:
        """Return the predictions of the examples [2, n], and their labels."""
        if not self._kept:
            return None
        predicted, labels = zip(*self._kept, strict=True)
        return torch.cat(predicted, 1)[:, :KEPT], torch.cat(labels)[:KEPT]


class Scores:
    """Accumulate the scores that tell outliers from test examples."""

    def __init__(self, about: About, members: Sequence[int]) -> None:
        self.about, self.members = about, members
        self._found: list[dict[str, Tensor]] = []

    def add(self, batch: Outputs) -> None:
        """Add a batch."""
        self._found.append(scores([batch.members[number] for number in self.members]))

    @property
    def broken(self) -> int:
        """How many of the predictions are NaN."""
        return int(self.found()["entropy"].isnan().sum())

    def found(self) -> dict[str, Tensor]:
        """Return the scores of all examples, by name."""
        return {name: torch.cat([one[name] for one in self._found]) for name in self._found[0]}


# Outliers


def scores(members: Sequence[Classes]) -> dict[str, Tensor]:
    """Return the scores of examples by name, float64 [n], from the logits of the members of an ensemble.

    They are the largest probability, minus the entropy, and minus the mutual information of answer and member.
    """
    logits = torch.stack([member.logs for member in members])
    mean = log_mean(logits)
    found = {"probability": mean.amax(-1).exp(), "entropy": -_entropy(mean)}
    if len({id(member) for member in members}) > 1:  # a point beside itself cannot disagree
        each = _entropy(logits.double().log_softmax(-1)).mean(0)
        found["disagreement"] = -(found["entropy"].neg() - each)
    return found


def _entropy(logs: Tensor) -> Tensor:
    found: Tensor = torch.special.entr(logs.exp()).sum(-1)
    return found


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Return P(a > b) + ½ P(a = b) for a score a of the test examples and b of the outliers."""
    inner, outer = inside.double(), outside.double().sort().values
    below, not_above = (torch.searchsorted(outer, inner, right=right) for right in (False, True))
    pairs = (below + not_above).sum(dtype=torch.float64) / 2
    return float(pairs / (len(inner) * len(outer)))


def fpr95(inside: Tensor, outside: Tensor) -> float:
    """Return the share of outliers with at least the score that 95 % of the test examples have at least."""
    inner, outer = inside.double().sort().values, outside.double()
    lost = 5 * len(inner) // 100  # of the lowest scores
    return float((outer >= inner[lost]).double().mean())


SCORES = {
    "probability": ("max. probability", "the largest probability"),
    "entropy": ("entropy", "minus the entropy of the probabilities"),
    "disagreement": (
        "disagreement",
        "how little the members disagree (minus the mutual information of answer and member)",
    ),
}
"""Label and meaning of each score; that of disagreement is of ensembles alone."""
MEASURES = {
    "auroc": ("AUROC", "how often a test example scores higher than an outlier", auroc),
    "fpr95": ("FPR95", "share of outliers that pass a threshold which 95 % of the test examples pass", fpr95),
}
"""Label and meaning of each metric of two sets of scores, and the function that computes it."""
OUTLIER_METRICS = [
    Metric(
        f"{measure}_{score}",
        f"{label}, {words}",
        f"{meaning}, by {what}",
        lower_is_better=measure == "fpr95",
        percent=True,
        headline=score != "entropy",
    )
    for score, (words, what) in SCORES.items()
    for measure, (label, meaning, _) in MEASURES.items()
]


def outlier_metrics(inside: dict[str, Tensor], outside: dict[str, Tensor]) -> dict[str, float]:
    """Return all measures of all scores, by the names of `OUTLIER_METRICS`; NaN where a score is."""
    found = {}
    for name, familiar in inside.items():
        known = not bool(familiar.isnan().any() | outside[name].isnan().any())
        for measure, (_, _, of) in MEASURES.items():
            found[f"{measure}_{name}"] = of(familiar, outside[name]) if known else math.nan
    return found
