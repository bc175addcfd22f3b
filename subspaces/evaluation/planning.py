"""What is to be measured of a subject: points, ensembles and answers; and what cannot be, said before anything is."""

from collections.abc import Sequence

from subspaces.errors import ArgumentError
from subspaces.evaluation import outliers, shifted_data
from subspaces.evaluation.answers import ANSWERS, SOUP
from subspaces.evaluation.plane import Network, corners
from subspaces.evaluation.points import Item, average_of, kind, plan
from subspaces.evaluation.rows import Answered
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import Subject
from subspaces.text import listed

PAIRS = 6  # of opposite points along a line or curve on shifted data, the midpoint among them, which are 11 points


def check(subject: Subject, settings: Settings, others: Sequence[Network]) -> None:
    """Refuse what cannot be measured of a subject before anything is."""
    settings.chosen_on(subject)
    shifted_data.check(subject, settings.corruptions)
    outliers.sets_of(subject, settings.outliers)
    for name, wanted in (("plane", settings.wants_plane), ("check_statistics", settings.check_statistics)):
        if wanted and not subject.walks:
            raise ArgumentError(
                f"{name}=…: {subject.name} is no family of networks; expected a Subspace, or a run of one"
            )
    if settings.wants_plane:
        corners(subject, others)
    if wants_soup(subject, settings):
        _check_soup(subject)
    elif not items_of(subject, settings)[1]:
        asked, usual = listed(settings.answers), ", ".join(map(repr, subject.answers))
        raise ArgumentError(f"answers={asked}: {subject.name} has none of these; expected some such as {usual}")


def wants_soup(subject: Subject, settings: Settings) -> bool:
    """Say whether the greedy soup is among the answers."""
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


def thinned(subject: Subject, items: Sequence[Item], answers: Sequence[Answered]) -> list[Item]:
    """Return the items of all answers and some of a walk: pairs along a line or curve, vertices and the midpoint."""
    averages = subject.task.averages[:1]
    if kind(subject.shape) == "interval":
        walk = [item for item in items if item.ensemble == "along"]
        last = len(walk) - 1
        kept = [walk[round(step * last / (PAIRS - 1))] for step in range(PAIRS)] if len(walk) > PAIRS else walk
    else:
        kept = [item for item in items if item.role in ("vertex", "midpoint")]
    return [item for item in items if item in kept or any(a.is_of(r) for r in item.rows(averages) for a in answers)]
