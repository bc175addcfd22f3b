"""Plan what is measured of a subject, and build its evaluation from the measurements."""

import warnings
from collections.abc import Sequence
from typing import Any

from subspaces.errors import ArgumentError
from subspaces.evaluation import shifted_data
from subspaces.evaluation.answers import ANSWERS
from subspaces.evaluation.display import Progress
from subspaces.evaluation.evaluation import FILE, Evaluation, choice
from subspaces.evaluation.examples import SPLIT, examples_of
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.plane import Network, corners, measure_plane, planes_of
from subspaces.evaluation.points import Item, kind, plan
from subspaces.evaluation.rows import Answered, Choice, Examples, Row
from subspaces.evaluation.session import Session
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import Subject
from subspaces.text import listed

PAIRS = 6  # of opposite points along a line or curve on shifted data, the midpoint among them, which are 11 points


class PredictionWarning(UserWarning):
    """Predictions that are NaN."""


def check(subject: Subject, settings: Settings, others: Sequence[Network]) -> None:
    """Raise for settings that do not fit a subject, before anything is measured."""
    shifted_data.check(subject, settings.corruptions)
    shifted_data.outliers_of(subject, settings.outliers)
    if settings.wants_plane and subject.networks:
        raise ArgumentError(f"plane=…: {subject.name} is no family of networks; expected a Subspace, or a run of one")
    if settings.wants_plane:
        corners(subject, others)
    if not _items_of(subject, settings)[1]:
        asked, usual = settings.answers or subject.answers, ", ".join(map(repr, subject.answers))
        raise ArgumentError(f"answers={listed(asked)}: {subject.name} has none of these; expected some such as {usual}")


def _items_of(subject: Subject, settings: Settings) -> tuple[list[Item], list[Answered]]:
    points: Any = {"grid": settings.grid, "random": settings.random, "triangle": settings.triangle}
    walk = [] if subject.networks else plan(subject.shape, **points, seed=subject.seed)
    family = subject.terms._replace(walk=walk, masks=settings.dropout_passes)
    items, wanted = list(walk), [ANSWERS.find(name) for name in settings.answers or subject.answers]
    averages = subject.task.averages
    for item in (answer.item(family) for answer in wanted):
        if item is not None:
            known = [row for each in items for row in each.rows(averages)]
            items += [] if all(row in known for row in item.rows(averages)) else [item]
    answers = [answer.of(family, averages[0]) for answer in wanted]
    return items, [each for each in answers if each is not None]


def _thinned(subject: Subject, items: Sequence[Item], answers: Sequence[Answered]) -> list[Item]:
    """Return the items measured on shifted data: all answers, and some pairs of a line, or vertices and midpoint."""
    averages = subject.task.averages[:1]
    if kind(subject.shape) == "interval":
        walk = [item for item in items if item.ensemble == "along"]
        last = len(walk) - 1
        kept = [walk[round(step * last / (PAIRS - 1))] for step in range(PAIRS)] if len(walk) > PAIRS else walk
    else:
        kept = [item for item in items if item.role in ("vertex", "midpoint")]
    return [item for item in items if item in kept or any(a.is_of(r) for r in item.rows(averages) for a in answers)]


def evaluate(
    subject: Subject,
    metrics: Sequence[Metric],
    settings: Settings,
    others: Sequence[Network],
    progress: Progress,
    command: str = "",
) -> Evaluation:
    """Measure what is missing of one subject and return its evaluation; that of a run is also written to its folder.

    `command` is the command line, which is stored with the earlier ones.
    """
    session, folder = Session(subject, metrics, settings, progress), subject.folder
    items, answers = _items_of(subject, settings)
    session.walk(items)
    if settings.wants_plane:
        measure_plane(session, corners(subject, others))
    rows = session.rows(session.measure_other_data(_thinned(subject, items, answers)))
    earlier = Evaluation.load(folder) if folder is not None and (folder / FILE).exists() else None
    if earlier is not None and earlier.family != subject.checksum:
        earlier = None
    dataset = subject.dataset if earlier is None else earlier.dataset
    splits = {row.data: row.count for row in rows if not row.group}
    statistics = {"images": session.images(), **subject.extra, "batches": settings.statistics_batches}
    commands = [*([] if earlier is None else earlier.command.splitlines()), command]
    shape = {"kind": kind(subject.shape), "vertices": subject.shape.vertices, "members": subject.terms.vertices}
    found = Evaluation(
        name=subject.name,
        shape={**shape, "type": type(subject.shape).__name__},
        task=subject.task.name,
        metrics=[each.described for each in session.metrics],
        answers=answers,
        environment=_environment(session, earlier),
        dataset={**dataset, "splits": {**dataset["splits"], **splits}},
        statistics=statistics,
        rows=rows,
        planes=planes_of(session),
        choices=_choices(session, rows),
        examples=_examples(session, rows, earlier),
        command="\n".join(dict.fromkeys(filter(None, commands))),
        **subject.trained(statistics),
    )
    if folder is not None and found != earlier:
        found.save(folder)
    _warn_of_broken(session)
    return found


def _environment(session: Session, earlier: Evaluation | None) -> dict[str, Any]:
    """Return where the last measurement was made."""
    if earlier is not None and not session.measured:
        return earlier.environment
    checksum = session.subject.checksum
    return {**session.subject.environment, **({} if checksum is None else {"family": checksum})}


def _choices(session: Session, rows: Sequence[Row]) -> list[Choice]:
    """Return the best points on held-out examples by the shown metrics, and the best pair by the first of them."""
    split, by = "validation", session.shown
    there = [row for row in rows if row.data == split and not row.group]
    points = [row for row in there if row.kind == "point"]
    pairs = [row for row in there if row.average not in (None, "logits") and len(row.alphas) == 2]
    pairs = [row for row in pairs if row.alphas[0] != row.alphas[1]]
    found = [choice("point", metric, rows, points, split) for metric in by]
    found.append(choice("pair", by[0], rows, pairs, split))
    return [each for each in found if each is not None]


def _examples(session: Session, rows: Sequence[Row], earlier: Evaluation | None) -> Examples | None:
    """Return the examples whose predicted class changes; those of the earlier evaluation if its points are the same."""
    points, before = ([row for row in each if _walked(row)] for each in (rows, [] if earlier is None else earlier.rows))
    if earlier is not None and before == points:
        return earlier.examples
    predicted = [session.predicted(row.alphas[0]) for row in points]
    there = [each for each in predicted if each is not None]
    if len(points) < 2 or len(there) < len(predicted):
        return None
    return examples_of([row.alphas[0] for row in points], there, session.labels(), session.subject.images)


def _walked(row: Row) -> bool:
    return row.kind == "point" and row.data == SPLIT and not row.group


def _warn_of_broken(session: Session) -> None:
    if not session.broken:
        return
    most = max(session.broken, key=lambda one: (one[2] / one[3], one[1] == SPLIT, one[0].kind == "point"))
    about, data, broken, count = most
    of = "the network" if session.subject.networks else f"alpha = {' and '.join(map(str, about.alphas))}"
    others = len(session.broken) - 1
    more = f", and some in {others} other measurements" if others else ""
    warnings.warn(
        f"{session.subject.name}: {broken} of {count} predictions on the {data} examples are NaN at "
        f"{of}{more}. They count as wrong, and NLL, calibration and the like are NaN there: check the inputs for NaN "
        "and the weights for a training that diverged",
        PredictionWarning,
        stacklevel=2,
    )
