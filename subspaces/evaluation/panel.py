"""Several points of a family that are asked about many sets of examples: each network is prepared once."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from subspaces.core import nested, randomness
from subspaces.evaluation.classification import Classes
from subspaces.evaluation.metrics import Metric, Tally
from subspaces.evaluation.points import Item, Place, row_of
from subspaces.evaluation.record import About, Row
from subspaces.evaluation.subject import Subject
from subspaces.evaluation.tasks import Task

NUMBERS = 2**22  # of a network's answers that wait for their metrics


class Heard(NamedTuple):
    """What is said about a batch: for each row the parts of its members; and what is right."""

    rows: list[list[Any]]
    target: Any


def in_large_parts(heard: Iterable[Heard]) -> Iterator[Heard]:
    """Yield what is said about classes in fewer batches: metrics of many examples cost hardly more than of few."""
    waiting: list[Heard] = []
    for each in heard:
        waiting.append(each)
        first = each.rows[0][0]
        if not isinstance(first, Classes) or len(waiting) * first.logs.numel() >= NUMBERS:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(several: Sequence[Heard]) -> Heard:
    """Return batches as one; a member of several rows stays one thing."""
    if len(several) == 1:
        return several[0]
    made: dict[int, Classes] = {}

    def whole(row: int, member: int) -> Classes:
        parts = [heard.rows[row][member] for heard in several]
        if id(parts[0]) not in made:
            made[id(parts[0])] = Classes(torch.cat([part.logs for part in parts]))
        return made[id(parts[0])]

    rows = [[whole(row, member) for member in range(len(members))] for row, members in enumerate(several[0].rows)]
    return Heard(rows, torch.cat([heard.target for heard in several]))


class Panel:
    """The networks at the points of some items, with weights and batch-norm statistics of their own."""

    def __init__(self, subject: Subject, items: Iterable[Item], statistics_batches: int | None) -> None:
        self.subject, self.task = subject, subject.task
        self._predictor = subject.predictor([], statistics_batches)
        self.broken: list[tuple[About, int, int]] = []  # predictions of NaN: whose, how many of how many
        places = dict.fromkeys(place for item in items for place in item.points)
        self._networks = {place: self._predictor.keep(subject.weights(place)) for place in places}

    def about(self, items: Iterable[Item]) -> list[About]:
        """Return what the rows of items are about: points, and ensembles that are averaged in the usual way."""
        return [about for item in items for about in item.rows(self.task.averages[:1])]

    def hear(self, batches: Iterable[Any], items: Sequence[Item], *, labelled: bool = True) -> Iterator[Heard]:
        """Yield what the rows of items say, batch by batch."""
        places = list(dict.fromkeys(place for item in items if not item.masks for place in item.points))
        for number, batch in enumerate(batch for batch in batches if not nested.is_empty(batch)):
            rows, said, target = [], {}, None
            if places:
                networks = [self._networks[place] for place in places]
                members, target = self._predictor.ask(networks, batch, labelled=labelled)
                said = dict(zip(places, members, strict=True))
            for item in items:
                if item.masks:
                    passes, target = self._dropping(item, batch, number, labelled)
                    rows.append(passes)
                else:
                    rows += _members(item, said)
            yield Heard(rows, target)

    def _dropping(self, item: Item, batch: Any, number: int, labelled: bool) -> tuple[list[Any], Any]:
        seed = randomness.number(self.subject.seed, "dropout", number)
        network = self._networks[item.points[0]]
        return self._predictor.ask_dropping(network, item.masks, batch, seed, labelled=labelled)

    @torch.no_grad()
    def measure(self, batches: Iterable[Any], items: Sequence[Item], metrics: Sequence[Metric]) -> list[Row]:
        """Return the rows of items on labelled examples, by some metrics."""
        about = self.about(items)
        tallies, count = [Tally(metrics) for _ in about], 0
        for heard in in_large_parts(self.hear(batches, items)):
            usual = self.task.averages[0]
            predictions = [self.task.combine(members, usual) for members in heard.rows]
            if not len(predictions[0]):  # all labels of the batch are such as do not count
                continue
            for tally, prediction in zip(tallies, predictions, strict=True):
                tally.add(prediction, heard.target)
            count += len(predictions[0])
        self.broken = [(one, each.broken, count) for one, each in zip(about, tallies, strict=True) if each.broken]
        return [
            row_of(self.subject.shape, each, split="test", count=count, metrics=tally.values())
            for each, tally in zip(about, tallies, strict=True)
            if count
        ]


def _members(item: Item, said: dict[Place, Any]) -> list[list[Any]]:
    """Return the parts of an item's points, each alone, and of the ensemble of them if it is wanted."""
    alone = [[said[place]] for place in item.points]
    return alone if item.ensemble is None else [*alone, [said[place] for place in item.places]]


def lacking(items: Iterable[Item], rows: Iterable[Row], task: Task) -> list[Item]:
    """Return the items that have not all of their rows among these."""
    done = {row.key for row in rows}
    averages = task.averages[:1]
    return [item for item in items if not done.issuperset(about.key("test") for about in item.rows(averages))]
