"""Metrics in the cells of a plane, and whether it matters how many batches the batch-norm statistics are of."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from subspaces.evaluation.display import counted
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.metrics import Tally
from subspaces.evaluation.plane import SPLIT, Network, Span, same_grid, unmeasured
from subspaces.evaluation.points import plan
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.record import Check, Plane
from subspaces.evaluation.subject import Subject
from subspaces.experiments.data.dataset import Progress

SIDE = 5  # cells of the plane's grid in each direction, from edge to edge, where statistics are checked


class Points(NamedTuple):
    """Some points by their numbers, and what gives the weights at one."""

    weights: Callable[..., Any]
    at: list[list[float]]


def measure_plane(journal: Journal, networks: Sequence[Network], progress: Progress) -> dict[str, Points]:
    """Measure the cells that are missing in a plane; return by its name where the statistics may be checked."""
    settings, subject = journal.settings, journal.subject
    span = Span(subject, networks)
    predictor = subject.predictor([SPLIT], settings.plane_statistics_batches)
    plane = _planned(journal, span, predictor)
    missing, total = unmeasured(plane), settings.cells**2
    tick = counted(progress, f"{subject.name}: plane", total - len(missing), total)
    for j, i in missing:
        for name, value in _score(journal, predictor, span.weights(plane.xs[i], plane.ys[j])).items():
            plane.values[name][j][i] = value
        journal.touch()
        tick(1)
    return {plane.name: _cells_to_check(span, plane)}


def _planned(journal: Journal, span: Span, predictor: Predictor) -> Plane:
    """Return the plane of a record that has these cells, whatever of it is measured; an empty one if there is none."""
    record = journal.record
    count = record.dataset["splits"].get(SPLIT, 0)
    wanted = span.empty(journal.settings.cells, count, predictor.expected_images, journal.shown)
    same = next((each for each in record.planes if same_grid(each, wanted)), None)
    if same is not None:
        return same
    others = [each for each in record.planes if each.name != wanted.name]
    record.planes = sorted([*others, wanted], key=lambda each: each.name)
    return wanted


def _score(journal: Journal, predictor: Predictor, weights: Any) -> dict[str, float]:
    """Return the metrics of one network that planes show."""
    task = journal.subject.task
    tally = Tally([each for each in journal.metrics if each.name in journal.shown])
    for batch in predictor([weights])[SPLIT]:
        prediction = task.combine(batch.members, task.averages[0])
        if len(prediction):
            tally.add(prediction, batch.target)
    return tally.values()


def _points_to_check(subject: Subject) -> Points:
    """Return the ends or vertices and the midpoint of a subject."""
    items = plan(subject.shape, grid=(0.0, 1.0), random=0, triangle=0)
    places = dict.fromkeys(place for item in items if item.role != "edge" for place in item.points)
    return Points(
        lambda *alpha: subject.weights(alpha if len(alpha) > 1 else alpha[0]),
        [list(place) if isinstance(place, tuple) else [place] for place in places],
    )


def _cells_to_check(span: Span, plane: Plane) -> Points:
    """Return some cells of a plane, from edge to edge."""
    chosen = sorted({round(step * (len(plane.xs) - 1) / (SIDE - 1)) for step in range(SIDE)})  # in both directions
    return Points(span.weights, [[plane.xs[i], plane.ys[j]] for j in chosen for i in chosen])


def check_statistics(journal: Journal, plane: Mapping[str, Points], progress: Progress) -> None:
    """Measure points, and cells of a plane, with statistics of other numbers of batches."""
    wanted = journal.settings.check_statistics
    if not wanted:
        return
    places = {"points": _points_to_check(journal.subject), **plane}
    total = len(wanted) * sum(len(points.at) for points in places.values())
    tick = counted(progress, f"{journal.subject.name}: statistics", 0, total)
    for batches in wanted:
        for where, points in places.items():
            _check(journal, where, points, batches, tick)


def _check(journal: Journal, where: str, points: Points, batches: int, tick: Callable[[int], None]) -> None:
    """Measure points with statistics of so many batches, and add that to the record, unless it is there."""
    record = journal.record
    predictor = journal.subject.predictor([SPLIT], batches)
    images = predictor.expected_images
    others = [old for old in record.checks if (old.where, old.statistics_images) != (where, images)]
    if any(old.at == points.at for old in record.checks if old not in others):
        return tick(len(points.at))
    scores = []
    for numbers in points.at:
        scores.append(_score(journal, predictor, points.weights(*numbers)))
        tick(1)
    made = {name: [each[name] for each in scores] for name in scores[0]}
    new = Check(where, points.at, SPLIT, images or predictor.statistics_images, made)
    record.checks = sorted([*others, new], key=lambda one: (one.where, one.statistics_images))
    return journal.touch()
