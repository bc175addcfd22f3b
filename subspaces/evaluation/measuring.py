"""Measuring points and their ensembles, planes, and whether batch-norm statistics matter, one piece after the other."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from subspaces.evaluation import dropout, plane
from subspaces.evaluation.answers import ANSWERS, Family
from subspaces.evaluation.classification import Classes
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.metrics import Metric, Tally
from subspaces.evaluation.plane import Span
from subspaces.evaluation.points import Item, Place, coefficients, kind, plan, to_alpha
from subspaces.evaluation.predictions import KEPT, Said, joined, said
from subspaces.evaluation.predictor import Answers, Predictor
from subspaces.evaluation.record import Check, Plane, Row
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import Subject
from subspaces.evaluation.tasks import Task

FITTED = 10_000  # validation examples to which a temperature is fitted, at most
SIDE = 5  # cells of the plane's grid in each direction, from edge to edge, where statistics are checked
Tick = Callable[[int], None]
Weights = Callable[[], Any]


def items_of(subject: Subject, settings: Settings) -> tuple[list[Item], Family]:
    """Return everything that is to be measured of a subject, and what its answers depend on."""
    walk: list[Item] = []
    if subject.walks:
        walk = plan(
            subject.shape,
            grid=settings.grid,
            random=settings.random,
            triangle=settings.triangle,
            seed=subject.seed,
        )
    family = subject.terms._replace(walk=walk, masks=settings.dropout_passes)
    items = list(walk)
    for name in settings.answers or subject.answers:
        item = ANSWERS.find(name).item(family)
        if item is not None and not any(_includes(known, item) for known in items):
            items.append(item)
    return items, family


def _includes(known: Item, item: Item) -> bool:
    """Say whether an item that is measured anyway has all rows of another."""
    if item.masks or known.masks:
        return item == known
    if item.networks > 1:
        return known.places == item.places and known.ensemble == item.ensemble
    return item.places[0] in known.places and known.role == item.role


def measure(journal: Journal, items: Sequence[Item], predictor: Predictor, tick: Tick) -> None:
    """Measure items and add them to the journal; `tick` is told how many points each one had."""
    for item in items:
        rows, kept = Measuring(journal.subject, journal.metrics, item).rows(predictor)
        journal.record.statistics["images"] = predictor.statistics_images
        for (place, split), (found, labels) in kept.items():
            journal.predictions.add(place, split, found, labels)
        journal.add(rows)
        tick(len(item.points))


class Measuring:
    """One item: its points, and what they answer together."""

    def __init__(self, subject: Subject, metrics: Sequence[Metric], item: Item) -> None:
        self.subject, self.task, self.metrics, self.item = subject, subject.task, metrics, item
        self.places = item.points
        self.averages: tuple[str, ...] = self.task.averages if item.ensemble else ()
        self.temperatures: dict[Any, float] = {}

    def rows(self, predictor: Predictor) -> tuple[list[Row], dict[tuple[Place, str], tuple[Said, Tensor]]]:
        """Return the rows on all splits, and what points say about each example."""
        weights = [self.subject.weights(place) for place in self.places]
        if self.item.masks:
            answers = dropout.answers(predictor, weights[0], self.item.masks, self.subject.seed)
        else:
            answers = predictor(weights)
        rows: list[Row] = []
        kept: dict[tuple[Place, str], tuple[Said, Tensor]] = {}
        for split in sorted(answers, key=lambda name: name != "validation"):  # what is fitted there is for the rest
            for place, found in self._split(split, answers[split], rows).items():
                kept[place, split] = found
        return rows, kept

    @torch.no_grad()
    def _split(self, split: str, batches: Iterable[Answers], rows: list[Row]) -> dict[Place, tuple[Said, Tensor]]:
        points: list[Place] = [] if self.item.masks else self.places
        tallies = {key: self._tally() for key in [*points, *self.averages]}
        after = {key: Tally(self.metrics) for key in tallies if key in self.temperatures}
        together = range(self.item.networks if self.averages else 0)
        pairs = [Tally(self.task.distances) for _ in itertools.combinations(together, 2)]
        heard: dict[Place, list[Said]] = {}
        fitting: dict[Any, list[tuple[Tensor, Tensor]]] = {key: [] for key in tallies}
        labels, count = [], 0
        for batch in batches:
            singles = [self.task.combine([member], self.task.averages[0]) for member in batch.members]
            if not len(singles[0]):  # all labels of the batch are such as do not count
                continue
            members = self._members(batch.members)
            predictions: dict[Any, Any] = dict(zip(points, singles, strict=False))
            predictions |= {average: self.task.combine(members, average) for average in self.averages}
            for key, prediction in predictions.items():
                tallies[key].add(prediction, batch.target)
                if key in after:
                    after[key].add(self.task.scaled(prediction, self.temperatures[key]), batch.target)
                if split == "validation" and count < FITTED and isinstance(prediction, Classes):
                    fitting[key].append((prediction.logs, batch.target))
            for tally, (first, second) in zip(pairs, itertools.combinations(self._members(singles), 2), strict=True):
                tally.add(first, second)
            if count < KEPT and self.task.name == "classification":
                for place, single in zip(points, singles, strict=False):
                    heard.setdefault(place, []).append(said(single.probabilities))
                labels.append(batch.target.cpu())
            count += len(singles[0])
        self._check(split, count)
        for key, tally in tallies.items():
            extra = {"scaled": after[key].values() | {"temperature": self.temperatures[key]}} if key in after else {}
            rows.append(self._row(key, tally, split, count, pairs, extra))
        self._fit(fitting)
        return {place: (joined(found), torch.cat(labels)[:KEPT]) for place, found in heard.items()}

    def _members(self, values: Sequence[Any]) -> list[Any]:
        """Return what belongs to each member of the ensemble, of which two may be the same point."""
        if self.item.masks:
            return list(values)
        return [values[self.places.index(place)] for place in self.item.places] if self.item.ensemble else []

    def _tally(self) -> Tally:
        return Tally(self.metrics, gathered=self.task.gathered, summed=self.task.summed)

    def _check(self, split: str, count: int) -> None:
        if not count:
            raise ValueError(f"the {split} loader has no examples: expected at least one batch")

    def _fit(self, fitting: Mapping[Any, list[tuple[Tensor, Tensor]]]) -> None:
        """Fit a temperature to what was said about validation examples."""
        for key, parts in fitting.items():
            if parts:
                logs, target = (torch.cat(values)[:FITTED] for values in zip(*parts, strict=True))
                found = self.task.temperature(Classes(logs), target)
                if found is not None:
                    self.temperatures[key] = found

    def _row(
        self, key: Any, tally: Tally, split: str, count: int, pairs: Sequence[Tally], more: Mapping[str, Any]
    ) -> Row:
        item = self.item
        together = isinstance(key, str)
        places = list(item.places) if together else [key]
        spread = [pair.values() for pair in pairs] if together else []
        return Row(
            kind="ensemble" if together else "point",
            role=(item.ensemble or item.role) if together else item.role,
            alphas=[to_alpha(place) for place in places],
            coefficients=[coefficients(self.subject.shape, place) for place in places],
            split=split,
            count=count,
            metrics=tally.values(),
            average=key if together else None,
            diversity={name: sum(one[name] for one in spread) / len(spread) for name in spread[0]} if spread else None,
            networks=item.networks if together else 1,
            **self.task.curves(tally),
            **more,
        )


def score(task: Task, metrics: Sequence[Metric], predictor: Predictor, weights: Any, split: str) -> dict[str, float]:
    """Return metrics of one network on a split."""
    tally = Tally(metrics)
    for batch in predictor([weights])[split]:
        prediction = task.combine(batch.members, task.averages[0])
        if len(prediction):
            tally.add(prediction, batch.target)
    return tally.values()


def shown_metrics(journal: Journal) -> list[Metric]:
    """Return the metrics that planes show: those that the task names, or the first two."""
    names = journal.subject.task.shown
    return [each for each in journal.metrics if each.name in names] or list(journal.metrics[:2])


def planned(journal: Journal, span: Span, cells: int, predictor: Predictor) -> Plane:
    """Return the plane of a record that has these cells, whatever of it is measured; an empty one if there is none."""
    record, names = journal.record, [each.name for each in shown_metrics(journal)]
    count = record.dataset["splits"].get(plane.SPLIT, 0)
    wanted = span.empty(journal.subject, cells, count, predictor.expected_images, names)
    same = next((each for each in record.planes if plane.same_grid(each, wanted)), None)
    if same is not None:
        return same
    others = [each for each in record.planes if each.name != wanted.name]
    record.planes = sorted([*others, wanted], key=lambda each: each.name)
    return wanted


def measure_plane(journal: Journal, found: Plane, span: Span, predictor: Predictor, tick: Tick) -> None:
    """Measure the cells that are missing in a plane of the journal's record."""
    metrics = shown_metrics(journal)
    for j, i in plane.unmeasured(found):
        weights = span.weights(found.xs[i], found.ys[j])
        for name, value in score(journal.subject.task, metrics, predictor, weights, plane.SPLIT).items():
            found.values[name][j][i] = value
        journal.touch()
        tick(1)


def points_to_check(subject: Subject) -> dict[tuple[float, ...], Weights]:
    """Return the weights at the ends or vertices and at the midpoint of a subject."""
    if kind(subject.shape) == "simplex":
        items = plan(subject.shape, random=0, triangle=0)
        places: list[Place] = [place for item in items if item.role != "edge" for place in item.points]
    else:
        places = list(dict.fromkeys(place for item in plan(subject.shape, grid=(0.0, 1.0)) for place in item.points))

    def weights(place: Place) -> Weights:
        return lambda: subject.weights(place)

    return {place if isinstance(place, tuple) else (place,): weights(place) for place in places}


def cells_to_check(span: Span, found: Plane) -> dict[tuple[float, ...], Weights]:
    """Return the weights in some cells of a plane, from edge to edge."""

    def spread(values: Sequence[float]) -> list[float]:
        return [values[round(step * (len(values) - 1) / (SIDE - 1))] for step in range(SIDE)]

    def weights(x: float, y: float) -> Weights:
        return lambda: span.weights(x, y)

    return {(x, y): weights(x, y) for y in spread(found.ys) for x in spread(found.xs)}


def check_statistics(journal: Journal, where: str, points: Mapping[Any, Weights], batches: int, tick: Tick) -> None:
    """Measure points with statistics of so many batches, and add that to the record, unless it is there."""
    subject, record = journal.subject, journal.record
    predictor = subject.predictor([plane.SPLIT], batches)
    at, images = [list(point) for point in points], predictor.expected_images
    others = [old for old in record.checks if (old.where, old.statistics_images) != (where, images)]
    if any(old.at == at for old in record.checks if old not in others):
        return tick(len(points))
    scores = []
    for weights in points.values():
        scores.append(score(subject.task, shown_metrics(journal), predictor, weights(), plane.SPLIT))
        tick(1)
    made = {name: [each[name] for each in scores] for name in scores[0]}
    new = Check(where, at, plane.SPLIT, images or predictor.statistics_images, made)
    record.checks = sorted([*others, new], key=lambda one: (one.where, one.statistics_images))
    return journal.touch()
