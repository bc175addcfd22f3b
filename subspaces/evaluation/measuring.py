"""The one loop over networks and data: what networks predict for each batch is added to all that is wanted of it."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from subspaces.evaluation.classification import Classes, temperature
from subspaces.evaluation.examples import KEPT, Predicted
from subspaces.evaluation.metrics import Metric, Tally
from subspaces.evaluation.points import Item, Place
from subspaces.evaluation.predictor import Outputs
from subspaces.evaluation.rows import About
from subspaces.evaluation.tasks import Task

FITTED = 10_000  # validation examples to which a temperature is fitted, at most
NUMBERS = 2**22  # of a network's outputs that wait for their metrics


class Batch:
    """The outputs of several networks for the examples of a batch, and the targets of these."""

    def __init__(self, task: Task, outputs: Outputs) -> None:
        self.task, self.members, self.target = task, outputs.members, outputs.target
        self._known: dict[Any, Any] = {}

    def predicted(self, members: Sequence[int], average: str | None = None) -> Any:
        """Return the prediction of networks, by their numbers: of one, or of several that are averaged."""
        key = (*members, average)
        if key not in self._known:
            several = [self.members[number] for number in members]
            self._known[key] = self.task.combine(several, average or self.task.averages[0])
        return self._known[key]


class Wanted(Protocol):
    """What is made of the predictions of some networks."""

    def add(self, batch: Batch) -> None:
        """Take in a batch."""


@torch.no_grad()
def measure(task: Task, outputs: Iterable[Outputs], wanted: Sequence[Wanted], joined: bool = False) -> int:
    """Add what networks predict to all that is wanted of it, batch by batch; return the number of examples.

    Args:
        task: which makes predictions of outputs.
        outputs: of all networks, for each batch.
        wanted: rows of metrics, distances, scores: each knows which of the networks it is about.
        joined: whether small batches are joined before: metrics of many examples cost hardly more than of few.
    """
    count = 0
    for each in in_large_parts(outputs) if joined else outputs:
        batch = Batch(task, each)
        size = len(batch.predicted((0,)))
        if not size:  # all labels of the batch are such as do not count
            continue
        for one in wanted:
            one.add(batch)
        count += size
    return count


def in_large_parts(outputs: Iterable[Outputs]) -> Iterator[Outputs]:
    """Yield the outputs of classifiers in fewer batches."""
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
    return Outputs(whole, torch.cat([each.target for each in several]))


class Distances:
    """How differently networks predict: the mean over all pairs of them."""

    def __init__(self, metrics: Sequence[Metric], members: Sequence[int]) -> None:
        self._pairs = [(pair, Tally(metrics)) for pair in itertools.combinations(members, 2)]

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        for (first, second), tally in self._pairs:
            tally.add(batch.predicted((first,)), batch.predicted((second,)))

    def found(self) -> dict[str, float] | None:
        """Return the means by metric; None without pairs."""
        found = [tally.values() for _, tally in self._pairs]
        return {name: sum(one[name] for one in found) / len(found) for name in found[0]} if found else None


class Metrics:
    """The metrics of a point, or of several that are averaged, also after temperature scaling.

    Args:
        about: what it is about.
        members: the numbers of its networks.
        metrics: what is measured.
        temperature: with which the predictions are scaled too.
        fits: whether a temperature is fitted to the predictions.
        keeps: whether the predicted classes are kept.
        curves: whether curves are made too.
    """

    def __init__(
        self,
        about: About,
        members: Sequence[int],
        metrics: Sequence[Metric],
        temperature: float | None = None,
        fits: bool = False,
        keeps: bool = False,
        curves: bool = False,
    ) -> None:
        self.about, self.members, self.temperature = about, members, temperature
        self.fits, self.keeps, self.curves = fits, keeps, curves
        self.distances: Distances | None = None
        self.tally, self._scaled = Tally(metrics), Tally(metrics)
        self._fitted: list[tuple[Tensor, Tensor]] = []  # log-probabilities and labels
        self._kept: list[tuple[Predicted, Tensor]] = []

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        prediction, target = batch.predicted(self.members, self.about.average), batch.target
        self.tally.add(prediction, target)
        if self.temperature is not None:
            self._scaled.add(prediction.scaled(self.temperature), target)
        if self.fits and sum(len(labels) for _, labels in self._fitted) < FITTED:
            self._fitted.append((prediction.logs.float(), target))  # of which many are kept
        if self.keeps and sum(len(labels) for _, labels in self._kept) < KEPT:
            self._kept.append((Predicted.of(*prediction.top), target.cpu()))

    def found(self) -> dict[str, Any]:
        """Return what a row holds of it."""
        made = {"metrics": self.tally.values(), **(self.tally.curves() if self.curves else {})}
        if self.distances is not None:
            made["diversity"] = self.distances.found()
        if self.temperature is not None:
            made["scaled"] = self._scaled.values() | {"temperature": self.temperature}
        return made

    def fitted(self) -> float:
        """Return the temperature that fits best."""
        logs, target = (torch.cat(values)[:FITTED] for values in zip(*self._fitted, strict=True))
        return temperature(logs, target)

    def kept(self) -> tuple[Predicted, Tensor] | None:
        """Return the predictions of the examples, and their labels."""
        if not self._kept:
            return None
        predicted, labels = zip(*self._kept, strict=True)
        return Predicted.joined(predicted), torch.cat(labels)[:KEPT]


def members_of(items: Sequence[Item], averages: Sequence[str]) -> tuple[list[Place], list[tuple[Place, int]], Any]:
    """Return the points of items, those that are asked with dropout on and how often, and each row's members."""
    points = list(dict.fromkeys(place for item in items if not item.masks for place in item.points))
    passes = [(item.points[0], item.masks) for item in items if item.masks]
    rows: list[tuple[About, list[int]]] = []
    first = len(points)
    for item in items:
        if item.masks:
            members = list(range(first, first + item.masks))
            first += item.masks
        else:
            members = [points.index(place) for place in item.places]
        alone = [points.index(place) for place in item.points] if not item.masks else []
        for about, number in itertools.zip_longest(item.rows(averages), alone):
            rows.append((about, members if number is None else [number]))
    return points, passes, rows
