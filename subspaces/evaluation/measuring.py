"""Measuring one subject: points and their ensembles, one item after the other, and all that follows from them."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from subspaces.data.dataset import Progress
from subspaces.evaluation import choices, examples
from subspaces.evaluation.answers import ANSWERS
from subspaces.evaluation.cells import check_statistics, measure_plane
from subspaces.evaluation.classification import temperature
from subspaces.evaluation.display import counted
from subspaces.evaluation.examples import KEPT, Said, joined, said
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.metrics import Metric, Tally
from subspaces.evaluation.plane import Network, corners
from subspaces.evaluation.points import Item, Place, coefficients, plan, to_alpha
from subspaces.evaluation.predictor import Answers, Predictor
from subspaces.evaluation.record import Answered, Record, Row
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import Subject
from subspaces.evaluation.tasks import Classification, Task
from subspaces.text import listed

FITTED = 10_000  # validation examples to which a temperature is fitted, at most


def check(subject: Subject, settings: Settings, others: Sequence[Network]) -> None:
    """Refuse what cannot be measured of a subject before anything is."""
    settings.chosen_on(subject)
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
    for item in (answer.item(family) for answer in wanted):
        if item is not None and not any(_includes(known, item) for known in items):
            items.append(item)
    answers = [answer.of(family, subject.task.averages[0]) for answer in wanted]
    return items, [each for each in answers if each is not None]


def _includes(known: Item, item: Item) -> bool:
    """Say whether an item that is measured anyway has all rows of another."""
    if item.masks or known.masks:
        return item == known
    if item.networks > 1:
        return known.places == item.places and known.ensemble == item.ensemble
    return item.places[0] in known.places and known.role == item.role


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
        for (place, split), (found, labels) in kept.items():
            journal.predictions.add(place, split, found, labels)
        journal.add(rows)
        tick(len(item.points))


class _Answer:
    """What a point, or several on average, answer on one split: metrics, also after temperature scaling."""

    def __init__(self, task: Task, metrics: Sequence[Metric], temperature: float | None) -> None:
        self.task, self.temperature = task, temperature
        self.tally, self.scaled = Tally(metrics), Tally(metrics)
        self.heard: list[tuple[Tensor, Tensor]] = []  # log-probabilities and labels

    def add(self, prediction: Any, target: Any, fits: bool) -> None:
        """Take in a batch; a temperature may be fitted to it."""
        self.tally.add(prediction, target)
        if self.temperature is not None:
            self.scaled.add(prediction.scaled(self.temperature), target)
        if fits and isinstance(self.task, Classification):
            self.heard.append((prediction.logs, target))

    def found(self) -> dict[str, Any]:
        """Return what a row holds of it."""
        made = {"metrics": self.tally.values(), **self.tally.curves()}
        if self.temperature is None:
            return made
        return made | {"scaled": self.scaled.values() | {"temperature": self.temperature}}

    def fitted(self) -> float | None:
        """Return the temperature that fits best to what was heard."""
        if not self.heard:
            return None
        logs, target = (torch.cat(values)[:FITTED] for values in zip(*self.heard, strict=True))
        return temperature(logs, target)


class Measuring:
    """One item: its points, and what they answer together."""

    def __init__(self, subject: Subject, metrics: Sequence[Metric], item: Item) -> None:
        self.subject, self.task, self.metrics, self.item = subject, subject.task, metrics, item
        self.points: list[Place] = [] if item.masks else item.points
        self.averages: tuple[str, ...] = self.task.averages if item.ensemble else ()
        self.temperatures: dict[Place | str, float | None] = {}  # of points and averages

    def rows(self, predictor: Predictor) -> tuple[list[Row], dict[tuple[Place, str], tuple[Said, Tensor]]]:
        """Return the rows on all splits, and what points say about each example."""
        weights = [self.subject.weights(place) for place in self.item.points]
        if self.item.masks:
            answers = predictor.dropping(weights[0], self.item.masks, self.subject.seed)
        else:
            answers = predictor(weights)
        rows: list[Row] = []
        kept: dict[tuple[Place, str], tuple[Said, Tensor]] = {}
        for split in sorted(answers, key=lambda name: name != "validation"):  # what is fitted there is for the rest
            kept |= {(place, split): found for place, found in self._split(split, answers[split], rows).items()}
        return rows, kept

    @torch.no_grad()
    def _split(self, split: str, batches: Iterable[Answers], rows: list[Row]) -> dict[Place, tuple[Said, Tensor]]:
        keys: list[Place | str] = [*self.points, *self.averages]
        answers = {key: _Answer(self.task, self.metrics, self.temperatures.get(key)) for key in keys}
        together = range(self.item.networks if self.averages else 0)
        pairs = [Tally(self.task.distances) for _ in itertools.combinations(together, 2)]
        heard: dict[Place, list[Said]] = {place: [] for place in self.points}
        labels, count = [], 0
        for batch in batches:
            singles = [self.task.combine([member], self.task.averages[0]) for member in batch.members]
            if not len(singles[0]):  # all labels of the batch are such as do not count
                continue
            members = self._members(batch.members)
            predictions = singles[: len(self.points)] + [self.task.combine(members, each) for each in self.averages]
            for answer, prediction in zip(answers.values(), predictions, strict=True):
                answer.add(prediction, batch.target, fits=split == "validation" and count < FITTED)
            for tally, (first, second) in zip(pairs, itertools.combinations(self._members(singles), 2), strict=True):
                tally.add(first, second)
            if count < KEPT and self.task.keeps:
                for place, single in zip(self.points, singles, strict=False):
                    heard[place].append(said(*single.top))
                labels.append(batch.target.cpu())
            count += len(singles[0])
        if not count:
            raise ValueError(f"the {split} loader has no examples: expected at least one batch")
        rows += [self._row(key, split, count, answer.found(), pairs) for key, answer in answers.items()]
        self.temperatures |= {key: answer.fitted() for key, answer in answers.items()}
        return {place: (joined(found), torch.cat(labels)[:KEPT]) for place, found in heard.items() if found}

    def _members(self, values: Sequence[Any]) -> list[Any]:
        """Return what belongs to each member of the ensemble, of which two may be the same point."""
        if self.item.masks:
            return list(values)
        return [values[self.points.index(place)] for place in self.item.places] if self.averages else []

    def _row(self, key: Place | str, split: str, count: int, found: dict[str, Any], pairs: Sequence[Tally]) -> Row:
        item, places = self.item, self.item.places if isinstance(key, str) else (key,)
        if isinstance(key, str):
            apart = [pair.values() for pair in pairs]
            mean = {name: sum(one[name] for one in apart) / len(apart) for name in apart[0]} if apart else None
            found |= {"average": key, "networks": item.networks, "diversity": mean}
        return Row(
            kind="ensemble" if isinstance(key, str) else "point",
            role=(item.ensemble or item.role) if isinstance(key, str) else item.role,
            alphas=[to_alpha(place) for place in places],
            coefficients=[coefficients(self.subject.shape, place) for place in places],
            split=split,
            count=count,
            **found,
        )
