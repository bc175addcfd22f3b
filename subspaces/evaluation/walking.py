"""Walking over a family: points and their ensembles, one item after the other, and the search for a greedy soup."""

import itertools
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from subspaces.errors import ArgumentError
from subspaces.evaluation.classification import temperature
from subspaces.evaluation.display import counted
from subspaces.evaluation.examples import KEPT, Said, joined, said
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.metrics import Metric, Tally
from subspaces.evaluation.points import Item, Place, average_of, row_of, to_alpha
from subspaces.evaluation.predictor import Answers, Predictor
from subspaces.evaluation.record import About, Row
from subspaces.evaluation.soup import greedy
from subspaces.evaluation.subject import Subject
from subspaces.evaluation.tasks import Classification
from subspaces.experiments.data.dataset import Progress

FITTED = 10_000  # validation examples to which a temperature is fitted, at most


class Walk:
    """Measures items, one after the other, with one predictor, and adds them to a journal."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.subject = journal, journal.subject

    @cached_property
    def _predictor(self) -> Predictor:
        return self.subject.predictor(self.subject.splits, self.journal.settings.statistics_batches)

    def measure(self, items: Sequence[Item], progress: Progress) -> bool:
        """Measure what is missing of items, and say whether there was any."""
        missing = self.journal.missing(items)
        total, left = (sum(len(item.points) for item in some) for some in (items, missing))
        tick = counted(progress, self.subject.name, total - left, total)
        for item in missing:
            self._add(item)
            tick(len(item.points))
        return bool(missing)

    def _add(self, item: Item) -> None:
        measuring = Measuring(self.subject, self.journal.metrics, item)
        rows, kept = measuring.rows(self._predictor)
        self.journal.broken += measuring.broken
        self.journal.record.statistics["images"] = self._predictor.statistics_images
        for each in kept:
            self.journal.predictions.add(*each)
        self.journal.add(rows)

    def soup(self, progress: Progress) -> tuple[int, ...]:
        """Return the vertices of the greedy soup; what is tried are points of the family, as measured as the others."""
        count = self.subject.shape.vertices
        metric = self.journal.record.metric(self.journal.shown[0])
        tick = counted(progress, f"{self.subject.name}: soup", 0, 2 * count)

        def merit(vertices: tuple[int, ...]) -> float:
            place = average_of(self.subject.shape, vertices)
            if not self._validated(place):
                self._add(Item("candidate", (place,)))
            tick(1)
            return metric.merit(self._validated(place)[0].metrics[metric.name])

        return greedy(range(count), merit)

    def _validated(self, place: Place) -> list[Row]:
        """Return the rows of a point on the validation examples, whatever its role."""
        found = (row for row in self.journal.record.rows if row.split == "validation" and row.kind == "point")
        return [row for row in found if row.alphas == [to_alpha(place)]]


class _Answer:
    """What a point, or several on average, answer on one split: metrics, also after temperature scaling."""

    def __init__(self, metrics: Sequence[Metric], temperature: float | None, fits: bool) -> None:
        self.temperature, self.fits = temperature, fits
        self.tally, self.scaled = Tally(metrics), Tally(metrics)
        self.heard: list[tuple[Tensor, Tensor]] = []  # log-probabilities and labels to which one is fitted

    def add(self, prediction: Any, target: Any) -> None:
        """Take in a batch."""
        self.tally.add(prediction, target)
        if self.temperature is not None:
            self.scaled.add(prediction.scaled(self.temperature), target)
        if self.fits and sum(len(labels) for _, labels in self.heard) < FITTED:
            self.heard.append((prediction.logs.float(), target))  # of which many are kept

    def found(self) -> dict[str, Any]:
        """Return what a row holds of it."""
        made = {"metrics": self.tally.values(), **self.tally.curves()}
        if self.temperature is None:
            return made
        return made | {"scaled": self.scaled.values() | {"temperature": self.temperature}}

    def fitted(self) -> float:
        """Return the temperature that fits best to what was heard."""
        logs, target = (torch.cat(values)[:FITTED] for values in zip(*self.heard, strict=True))
        return temperature(logs, target)


class Measuring:
    """One item: its points, and what they answer together."""

    def __init__(self, subject: Subject, metrics: Sequence[Metric], item: Item) -> None:
        self.subject, self.task, self.metrics, self.item = subject, subject.task, metrics, item
        self.about = item.rows(self.task.averages)
        self.points: list[Place] = [] if item.masks else item.points
        # of each network of the ensemble, the number of its point, or of the pass
        self.members = range(item.masks) if item.masks else [self.points.index(place) for place in item.places]
        self.temperatures: list[float | None] = [None] * len(self.about)
        self.broken: list[tuple[About, str, int, int]] = []  # as a journal keeps it

    def rows(self, predictor: Predictor) -> tuple[list[Row], list[tuple[Place, str, Said, Tensor]]]:
        """Return the rows on all splits, and what points say on each about its examples, with the labels."""
        weights = [self.subject.weights(place) for place in self.item.points]
        if self.item.masks:
            answers = predictor.dropping(weights[0], self.item.masks, self.subject.seed)
        else:
            answers = predictor(weights)
        rows: list[Row] = []
        kept: list[tuple[Place, str, Said, Tensor]] = []
        for split in sorted(answers, key=lambda name: name != "validation"):  # what is fitted there is for the rest
            self._split(split, answers[split], rows, kept)
        return rows, kept

    @torch.no_grad()
    def _split(
        self, split: str, batches: Iterable[Answers], rows: list[Row], kept: list[tuple[Place, str, Said, Tensor]]
    ) -> None:
        """Add what is answered on a split."""
        fits = split == "validation" and isinstance(self.task, Classification)
        answers = [_Answer(self.metrics, known, fits) for known in self.temperatures]
        pairs = list(itertools.combinations(self.members, 2)) if self.item.ensemble else []
        apart = [Tally(self.task.distances) for _ in pairs]
        averages = self.task.averages if self.item.ensemble else ()
        heard: list[list[Said]] = [[] for _ in self.points]
        labels, count = [], 0
        for batch in batches:
            singles = [self.task.combine([member], self.task.averages[0]) for member in batch.members]
            if not len(singles[0]):  # all labels of the batch are such as do not count
                continue
            members = [batch.members[index] for index in self.members]
            together = [self.task.combine(members, each) for each in averages]
            for answer, prediction in zip(answers, [*singles[: len(self.points)], *together], strict=True):
                answer.add(prediction, batch.target)
            for tally, (first, second) in zip(apart, pairs, strict=True):
                tally.add(singles[first], singles[second])
            if count < KEPT and self.task.keeps:
                for known, single in zip(heard, singles, strict=False):
                    known.append(said(*single.top))
                labels.append(batch.target.cpu())
            count += len(singles[0])
        if not count:
            raise ArgumentError(f"the {split} loader has no examples: expected at least one batch")
        diversity = _mean(apart)
        for about, answer in zip(self.about, answers, strict=True):
            if answer.tally.broken:
                self.broken.append((about, split, answer.tally.broken, count))
            differing = diversity if about.average else None
            rows.append(
                row_of(self.subject.shape, about, diversity=differing, split=split, count=count, **answer.found())
            )
        if fits:
            self.temperatures = [answer.fitted() for answer in answers]
        for place, known in zip(self.points if labels else (), heard, strict=False):
            kept.append((place, split, joined(known), torch.cat(labels)[:KEPT]))


def _mean(tallies: Sequence[Tally]) -> dict[str, float] | None:
    """Return the mean of several tallies by metric; None of none."""
    found = [tally.values() for tally in tallies]
    return {name: sum(one[name] for one in found) / len(found) for name in found[0]} if found else None
