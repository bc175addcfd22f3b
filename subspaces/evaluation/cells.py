"""Metrics in the cells of a plane, and whether it matters how many batches the batch-norm statistics are of."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from subspaces.evaluation import files
from subspaces.evaluation.display import counted
from subspaces.evaluation.measuring import Metrics, measure
from subspaces.evaluation.plane import SPLIT, Network, Span
from subspaces.evaluation.points import plan
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.rows import About, Check, Plane
from subspaces.evaluation.session import Session

SIDE = 5  # cells of the plane's grid in each direction, from edge to edge, where statistics are checked


class Points(NamedTuple):
    """Some points by their numbers, what gives the weights at one, and what tells them from others."""

    where: str
    identity: Any
    weights: Callable[[Any], Any]
    at: list[list[float]]


def measure_plane(session: Session, networks: Sequence[Network]) -> Points:
    """Measure the cells that are missing in a plane; return some of them, from edge to edge."""
    settings, subject = session.settings, session.subject
    span = Span(subject, networks)

    def weights(at: Sequence[float]) -> Any:
        return span.weights(*at)

    predictor = subject.predictor([SPLIT], settings.plane_statistics_batches, weights)
    count = next((row.count for row in session.rows() if row.data == SPLIT), 0)
    plane = span.plane(settings.cells, count, predictor.expected_images, [each.name for each in session.shown])
    numbers = [f"{value:.6g}" for corner in plane.corners for value in (corner.x, corner.y)]  # up to rounding
    identity = {"name": plane.name, "corners": numbers, "cells": settings.cells, "count": count}
    cells = {"of": "cell", **session.family, "statistics": settings.plane_statistics_batches, "plane": identity}
    session.note({"of": "plane", **session.family, "name": plane.name}, {"plane": files.plain(plane), "cells": cells})
    places = {(j, i): (x, y) for j, y in enumerate(plane.ys) for i, x in enumerate(plane.xs)}
    missing = [cell for cell in places if session.find({**cells, "at": cell}, session.shown) is None]
    tick = counted(session.progress, f"{subject.name}: plane", len(places) - len(missing), len(places))
    for cell in missing:
        _score(session, {**cells, "at": cell}, predictor, places[cell])
        tick(1)
    chosen = sorted({round(step * (len(plane.xs) - 1) / (SIDE - 1)) for step in range(SIDE)})  # in both directions
    return Points(plane.name, identity, weights, [[plane.xs[i], plane.ys[j]] for j in chosen for i in chosen])


def _score(session: Session, key: Mapping[str, Any], predictor: Predictor, point: Any) -> dict[str, Any]:
    """Return the metrics of one network that planes show, and the images of its statistics, unless they are known."""
    known = session.find(key, session.shown)
    if known is None:
        wanted = Metrics(About("point", "cell", []), [0], session.shown)
        measure(session.task, predictor.outputs([point], SPLIT), [wanted])
        names = [each.name for each in session.shown]
        known = {"values": wanted.tally.values(), "metrics": names, "images": predictor.statistics_images}
        session.add(key, known)
    return known


def check_statistics(session: Session, plane: Points | None) -> None:
    """Measure ends or vertices, the midpoint, and cells of a plane with statistics of other numbers of batches."""
    wanted, subject = session.settings.check_statistics, session.subject
    if not wanted:
        return

    def weights(at: Sequence[float]) -> Any:
        return subject.weights(tuple(at) if len(at) > 1 else at[0])

    items = plan(subject.shape, grid=(0.0, 1.0), random=0, triangle=0)
    alphas = dict.fromkeys(place for item in items if item.role != "edge" for place in item.points)
    at = [list(place) if isinstance(place, tuple) else [place] for place in alphas]
    places = [Points("points", "points", weights, at), *([] if plane is None else [plane])]
    total = len(wanted) * sum(len(each.at) for each in places)
    tick = counted(session.progress, f"{subject.name}: statistics", 0, total)
    for batches in wanted:
        for some in places:
            predictor = subject.predictor([SPLIT], batches, some.weights)
            key = {**session.family, "statistics": batches, "where": some.identity}
            scores = []
            for numbers in some.at:
                scores.append(_score(session, {"of": "check", **key, "at": numbers}, predictor, tuple(numbers)))
                tick(1)
            values = {name: [each["values"][name] for each in scores] for name in scores[0]["values"]}
            images = predictor.expected_images or scores[0]["images"]
            check = Check(some.where, some.at, SPLIT, images, values)
            session.note({"of": "checks", **key}, {"check": files.plain(check)})


def planes_of(session: Session) -> tuple[list[Plane], list[Check]]:
    """Return all planes of the family, with what is measured of their cells, and the checks of statistics."""
    planes: dict[str, Plane] = {}
    identities: list[Any] = ["points"]
    for _, values in session.items(of="plane", **session.family):
        plane: Plane = session.built(Plane, values["plane"])
        names = [each.name for each in session.metrics]
        if not set(plane.values) <= set(names):
            continue
        for j in range(len(plane.ys)):
            for i in range(len(plane.xs)):
                found = session.find({**values["cells"], "at": [j, i]})
                for name, grid in plane.values.items():
                    grid[j][i] = None if found is None else found["values"].get(name)
        planes[plane.name] = plane
        identities.append(values["cells"]["plane"])
    checks: dict[Any, Check] = {}
    for key, values in session.items(of="checks", **session.family):
        if key["where"] in identities:
            check: Check = session.built(Check, values["check"])
            checks[check.where, check.statistics_images] = check
    return [planes[name] for name in sorted(planes)], [checks[key] for key in sorted(checks)]
