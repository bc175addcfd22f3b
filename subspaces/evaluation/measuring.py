"""Measuring one subject: points and their ensembles, one item after the other, and all that follows from them."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from subspaces.data.dataset import Progress
from subspaces.evaluation import choices, examples, outliers, shifted_data
from subspaces.evaluation.answers import ANSWERS
from subspaces.evaluation.cells import check_statistics, measure_plane
from subspaces.evaluation.classification import temperature
from subspaces.evaluation.display import counted
from subspaces.evaluation.examples import KEPT, Said, joined, said
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.metrics import Metric, Tally
from subspaces.evaluation.outlying import measure_outliers
from subspaces.evaluation.plane import Network, corners
from subspaces.evaluation.points import Item, Place, plan, row_of
from subspaces.evaluation.predictor import Answers, Predictor
from subspaces.evaluation.record import Answered, Record, Row
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.shifts import measure_shifts
from subspaces.evaluation.subject import Subject
from subspaces.evaluation.tasks import Classification
from subspaces.text import listed

FITTED = 10_000  # validation examples to which a temperature is fitted, at most


def check(subject: Subject, settings: Settings, others: Sequence[Network]) -> None:
    """Refuse what cannot be measured of a subject before anything is."""
    settings.chosen_on(subject)
    shifted_data.check(subject, settings.corruptions)
    outliers.check(subject, settings.outliers)
    for name, wanted in (("plane", settings.wants_plane), ("check_statistics", settings.check_statistics)):
        if wanted and not subject.walks:
            raise ValueError(f"{name}=…: {subject.name} is no family of networks; expected a Subspace, or a run of one")
    if settings.wants_plane:
        corners(subject, others)
    if not items_of(subject, settings)[1]:
        asked, usual = listed(settings.answers), ", ".join(map(repr, subject.answers))
        raise ValueError(f"answers={asked}: {subject.name} has none of these; expected some such as {usual}")


def measure_all(journal: Journal, others: Sequence[Network], progress: Progress) -> Record:
    """Measure what is missing of one subject, choose, and return its record."""
    settings, subject, record = journal.settings, journal.subject, journal.record
    try:
        items, answers = items_of(subject, settings)
        missing = journal.missing(items)
        _measure(journal, missing, sum(len(item.points) for item in items), progress)
        journal.note(answers=answers)
        plane = measure_plane(journal, corners(subject, others), progress) if settings.wants_plane else {}
        check_statistics(journal, plane, progress)
        measure_shifts(journal, items, answers, progress)
        measure_outliers(journal, items, answers, progress)
        splits = settings.chosen_on(subject)
        journal.note(choices=choices.renew(record, journal.predictions, splits, journal.shown))
        journal.note(examples=examples.renew(record, journal.predictions, subject.images, anew=bool(missing)))
    finally:  # also when it was stopped, or failed: what was measured is kept
        journal.write()
    return record


def items_of(subject: Subject, settings: Settings) -> tuple[list[Item], list[Answered]]:
    """Return everything that is to be measured of a subject, and how it answers, in words."""
    points = {"grid": settings.grid, "random": settings.random, "triangle": settings.triangle}
    walk = plan(subject.shape, **points, seed=subject.seed) if subject.walks else []  # type: ignore[arg-type]
    family = subject.terms._replace(walk=walk, masks=settings.dropout_passes)
    items, wanted = list(walk), [ANSWERS.find(name) for name in settings.answers or subject.answers]
    averages = subject.task.averages
    for item in (answer.item(family) for answer in wanted):
        if item is not None:
            known = [row for each in items for row in each.rows(averages)]
            items += [] if all(row in known for row in item.rows(averages)) else [item]
    answers = [answer.of(family, averages[0]) for answer in wanted]
    return items, [each for each in answers if each is not None]


def _measure(journal: Journal, missing: Sequence[Item], total: int, progress: Progress) -> None:
    """Measure items and add them to the journal."""
    subject = journal.subject
    tick = counted(progress, subject.name, total - sum(len(item.points) for item in missing), total)
    if not missing:
        return
    predictor = subject.predictor(subject.splits, journal.settings.statistics_batches)
    for item in missing:
        rows, kept = Measuring(subject, journal.metrics, item).rows(predictor)
        journal.record.statistics["images"] = predictor.statistics_images
        for each in kept:
            journal.predictions.add(*each)
        journal.add(rows)
        tick(len(item.points))


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
            self.heard.append((prediction.logs, target))

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
            raise ValueError(f"the {split} loader has no examples: expected at least one batch")
        diversity = _mean(apart)
        for about, answer in zip(self.about, answers, strict=True):
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
