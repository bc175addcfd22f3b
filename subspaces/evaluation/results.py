"""What all measurements of a subject come to: its evaluation."""

import warnings
from collections.abc import Sequence
from typing import Any

from subspaces.evaluation import planning
from subspaces.evaluation.cells import check_statistics, measure_plane, planes_of
from subspaces.evaluation.choices import choose
from subspaces.evaluation.evaluation import FILE, Evaluation
from subspaces.evaluation.examples import SPLIT, examples_of
from subspaces.evaluation.images import Progress
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.plane import Network, corners
from subspaces.evaluation.points import kind
from subspaces.evaluation.rows import Choice, Examples, Row
from subspaces.evaluation.session import Session
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.subject import Subject


class PredictionWarning(UserWarning):
    """Predictions that are NaN."""


def evaluate(
    subject: Subject,
    metrics: Sequence[Metric],
    settings: Settings,
    others: Sequence[Network],
    progress: Progress,
    command: str = "",
) -> Evaluation:
    """Measure what is missing of one subject, choose, and return its evaluation; that of a run is also written.

    `command` is the command line that asks for it, which is kept with those before.
    """
    session = Session(subject, metrics, settings, progress)
    items, answers = planning.items_of(subject, settings)
    session.walk(items)
    if planning.wants_soup(subject, settings):
        items, answers = planning.items_of(subject, settings, session.soup())
        session.walk(items)
    plane = measure_plane(session, corners(subject, others)) if settings.wants_plane else None
    check_statistics(session, plane)
    asked = [*session.shifts(items, answers), *session.outliers(items, answers)]
    rows = session.rows(asked)
    earlier = _earlier(session)
    same = earlier is not None and earlier.statistics.get("batches") == settings.statistics_batches
    splits = {row.data: row.count for row in rows if not row.group}
    dataset = subject.dataset if earlier is None else earlier.dataset
    planes, checks = planes_of(session)
    statistics = {"images": session.images(), **subject.noted, "batches": settings.statistics_batches}
    said = "" if earlier is None else earlier.command
    before = earlier.choices if earlier is not None and same else []
    found = Evaluation(
        name=subject.name,
        shape={
            "kind": kind(subject.shape),
            "vertices": subject.shape.vertices,
            "members": subject.terms.vertices,
            "type": type(subject.shape).__name__,
        },
        task=subject.task.name,
        metrics=[each.described for each in session.metrics],
        answers=answers,
        environment=session.environment(),
        dataset={**dataset, "splits": {**dataset["splits"], **splits}},
        statistics=statistics,
        rows=rows,
        planes=planes,
        choices=_choices(session, rows, [each.chosen_on for each in before]),
        checks=checks,
        examples=_examples(session, rows, earlier),
        command="\n".join(dict.fromkeys(filter(None, [*said.splitlines(), command]))),
        **subject.trained(statistics),
    )
    if subject.folder is not None and (session.measured or _content(found) != _content(earlier)):
        found.save(subject.folder)
    _warn_of_broken(session)
    return found


def _content(found: Evaluation | None) -> dict[str, Any]:
    """Return an evaluation without what a run says anew when it is read, such as the name of its folder."""
    told = ("name", "training", "environment")
    return {} if found is None else {name: each for name, each in vars(found).items() if name not in told}


def _earlier(session: Session) -> Evaluation | None:
    """Return the evaluation that is there, of the same family."""
    folder = session.subject.folder
    if folder is None or not (folder / FILE).exists():
        return None
    found = Evaluation.load(folder)
    return found if found.family == session.subject.checksum else None


def _choices(session: Session, rows: Sequence[Row], before: Sequence[str]) -> list[Choice]:
    """Return the choices on the splits that are asked for, and on those on which there are choices already."""
    midpoint = next((row for row in rows if row.role == "midpoint" and not row.group), None)
    middle = {}
    for split in dict.fromkeys(row.data for row in rows if not row.group):
        predicted = None if midpoint is None else session.predicted(midpoint.alphas[0], split)
        if predicted is not None:
            middle[split] = predicted.each(session.labels(split))
    wanted = dict.fromkeys([*before, *session.settings.chosen_on(session.subject)])
    return [choice for split in wanted for choice in choose(rows, split, session.shown, middle)]


def _examples(session: Session, rows: Sequence[Row], earlier: Evaluation | None) -> Examples | None:
    """Return the examples whose predictions differ, which are those that there are where the points are the same."""
    points = _points(rows)
    if earlier is not None and _points(earlier.rows) == points:
        return earlier.examples
    predicted = [session.predicted(row.alphas[0], SPLIT) for row in points] if len(points) > 1 else []
    there = [each for each in predicted if each is not None]
    if not there or len(there) < len(predicted):
        return None
    alphas = [row.alphas[0] for row in points]
    return examples_of(alphas, there, session.labels(SPLIT), session.subject.images)


def _points(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.kind == "point" and row.data == SPLIT and not row.group]


def _warn_of_broken(session: Session) -> None:
    """Warn once of all predictions that were NaN."""
    if not session.broken:
        return
    worst = max(session.broken, key=lambda one: (one.broken / one.of, one.data == SPLIT, one.about.kind == "point"))
    of = f"alpha = {' and '.join(map(str, worst.about.alphas))}" if session.subject.walks else "the network"
    others = len(session.broken) - 1
    more = f", and some in {others} other measurements" if others else ""
    warnings.warn(
        f"{session.subject.name}: {worst.broken} of {worst.of} predictions on the {worst.data} examples are NaN at "
        f"{of}{more}. They count as wrong, and NLL, calibration and the like are NaN there: check the inputs for NaN "
        "and the weights for a training that diverged",
        PredictionWarning,
        stacklevel=2,
    )
