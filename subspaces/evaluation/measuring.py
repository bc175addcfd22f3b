"""Measuring one subject: points and their ensembles, one item after the other, and all that follows from them."""

from collections.abc import Sequence

from subspaces.errors import ArgumentError
from subspaces.evaluation import choices, examples, outliers, shifted_data
from subspaces.evaluation.answers import ANSWERS, SOUP
from subspaces.evaluation.cells import check_statistics, measure_plane
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.outlying import measure_outliers
from subspaces.evaluation.plane import Network, corners
from subspaces.evaluation.points import Item, average_of, plan
from subspaces.evaluation.record import Answered, Record
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.shifts import measure_shifts
from subspaces.evaluation.subject import Subject
from subspaces.evaluation.walking import Walk
from subspaces.experiments.data.dataset import Progress
from subspaces.text import listed


def check(subject: Subject, settings: Settings, others: Sequence[Network]) -> None:
    """Refuse what cannot be measured of a subject before anything is."""
    settings.chosen_on(subject)
    shifted_data.check(subject, settings.corruptions)
    outliers.check(subject, settings.outliers)
    for name, wanted in (("plane", settings.wants_plane), ("check_statistics", settings.check_statistics)):
        if wanted and not subject.walks:
            raise ArgumentError(
                f"{name}=…: {subject.name} is no family of networks; expected a Subspace, or a run of one"
            )
    if settings.wants_plane:
        corners(subject, others)
    if _wants_soup(subject, settings):
        _check_soup(subject)
    elif not items_of(subject, settings)[1]:
        asked, usual = listed(settings.answers), ", ".join(map(repr, subject.answers))
        raise ArgumentError(f"answers={asked}: {subject.name} has none of these; expected some such as {usual}")


def _wants_soup(subject: Subject, settings: Settings) -> bool:
    return SOUP in (settings.answers or subject.answers)


def _check_soup(subject: Subject) -> None:
    """Refuse a soup of what cannot be averaged, or without examples to choose by."""
    if not subject.walks:
        raise ArgumentError(
            f"answers={SOUP}: {subject.name} is no family of networks; make one of them with "
            f"Subspace.from_modules(networks, Simplex({subject.shape.vertices}))"
        )
    average_of(subject.shape, [0])
    if "validation" not in subject.splits:
        raise ArgumentError(
            f"answers={SOUP}: {subject.name} held no images out, by which it is chosen; train with --validation (or "
            "pass validation=)"
        )


def measure_all(journal: Journal, others: Sequence[Network], progress: Progress) -> Record:
    """Measure what is missing of one subject, choose, and return its record."""
    settings, subject, record = journal.settings, journal.subject, journal.record
    try:
        items, answers, new = _walk(journal, progress)
        journal.note(answers=answers)
        plane = measure_plane(journal, corners(subject, others), progress) if settings.wants_plane else {}
        check_statistics(journal, plane, progress)
        measure_shifts(journal, items, answers, progress)
        measure_outliers(journal, items, answers, progress)
        splits = settings.chosen_on(subject)
        journal.note(choices=choices.renew(record, journal.predictions, splits, journal.shown))
        journal.note(examples=examples.renew(record, journal.predictions, subject.images, anew=new))
        journal.warn_of_broken()
    finally:  # also when it was stopped, or failed: what was measured is kept
        journal.write()
    return record


def _walk(journal: Journal, progress: Progress) -> tuple[list[Item], list[Answered], bool]:
    """Measure points and answers; return them, and whether any was missing."""
    subject, settings, walk = journal.subject, journal.settings, Walk(journal)
    items, answers = items_of(subject, settings)
    new = walk.measure(items, progress)
    if _wants_soup(subject, settings):
        items, answers = items_of(subject, settings, walk.soup(progress))
        new |= walk.measure(items, progress)
    return items, answers, new


def items_of(
    subject: Subject, settings: Settings, soup: tuple[int, ...] | None = None
) -> tuple[list[Item], list[Answered]]:
    """Return everything that is to be measured of a subject, and how it answers, in words."""
    points = {"grid": settings.grid, "random": settings.random, "triangle": settings.triangle}
    walk = plan(subject.shape, **points, seed=subject.seed) if subject.walks else []  # type: ignore[arg-type]
    family = subject.terms._replace(walk=walk, masks=settings.dropout_passes, soup=soup)
    items, wanted = list(walk), [ANSWERS.find(name) for name in settings.answers or subject.answers]
    averages = subject.task.averages
    for item in (answer.item(family) for answer in wanted):
        if item is not None:
            known = [row for each in items for row in each.rows(averages)]
            items += [] if all(row in known for row in item.rows(averages)) else [item]
    answers = [answer.of(family, averages[0]) for answer in wanted]
    return items, [each for each in answers if each is not None]
