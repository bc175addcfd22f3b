"""Which point of a family is exported: what a user may write, as what networks that is."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from subspaces.core import checks
from subspaces.core.alpha import to_alpha
from subspaces.core.selection.selection import shown
from subspaces.core.shapes import Shape
from subspaces.errors import ArgumentError
from subspaces.evaluation.answers import ANSWERS, Family, middle_of, named
from subspaces.evaluation.points import Place, kind, plan
from subspaces.experiments.evaluating.selection import read_selection
from subspaces.experiments.training.runs import Run
from subspaces.export.errors import ExportError
from subspaces.export.metadata import Kind

NAMES = ("midpoint", "selected", "ensemble", "family")
Point = str | float | Sequence[Any] | Mapping[str, Any] | Tensor
"""A name, a number, coordinates, a point for each layer, or several points that answer together."""


@dataclass(frozen=True)
class Chosen:
    """The networks of an export, and what they are called."""

    kind: Kind
    words: str
    places: tuple[Any, ...]  # numbers, coordinates, or a point for each layer by name
    short: str  # in the name of a file
    average: str = ""
    notes: tuple[str, ...] = ()  # for the card


def choose(point: Point, terms: Family, answers: Sequence[str], seed: int = 0) -> Chosen:
    """Return what a point, or several, of a family mean; `answers` are the names of how its method answers."""
    shape = terms.shape
    if isinstance(point, str) and point == "midpoint":
        return Chosen("network", terms.middle, (middle_of(shape),), "midpoint")
    if isinstance(point, str) and point == "family":
        if kind(shape) == "single":
            raise ExportError("point='family': there is one network only; expected 'midpoint'")
        if kind(shape) == "simplex" and not _barycentric(shape):
            raise ExportError(f"point='family': alpha of {shape} is no number and not barycentric; expected one point")
        return Chosen("family", f"every point of {shape}", (), "family")
    if isinstance(point, str) and point == "selected":
        raise ExportError("point='selected': a run keeps what was selected; expected family.select(…).alpha")
    if isinstance(point, Mapping) and point:
        return Chosen("network", "a point for each layer", (dict(point),), "layers")
    if isinstance(point, str) and point == "ensemble":
        return _own_ensemble(terms, answers, seed)
    given = _several(point, shape)
    if not given:
        raise ArgumentError(f"point={checks.shown(point)}: expected one point or more, each {shape.domain}")
    if kind(shape) == "single":
        raise ExportError(f"point={checks.shown(point)}: there is one network only; expected 'midpoint'")
    places = [_place(each, shape) for each in given]
    words = named(places)
    short = "and".join("-".join(f"{x:g}" for x in (p if isinstance(p, tuple) else (p,))) for p in places)
    if len(places) == 1:
        return Chosen("network", f"the point {words}", tuple(places), f"at-{short}")
    return together(places, f"ensemble of {words}" if len(places) < 4 else f"ensemble of {len(places)} points")


def _barycentric(shape: Shape) -> bool:
    """Say whether alpha is the coefficients themselves."""
    middle = shape.midpoint()
    return middle.shape == (shape.vertices,) and bool((shape.coefficients(middle) - middle).abs().max() < 1e-9)


def together(places: Sequence[Place], words: str, average: str = "probabilities") -> Chosen:
    """Return several networks that answer as one."""
    return Chosen("ensemble", words, tuple(places), f"ensemble-of-{len(places)}", average)


def selected(run: Run) -> Chosen:
    """Return the point that `subspaces select` has chosen for a run."""
    found = read_selection(run)
    alpha = found.alpha
    place = tuple(alpha) if isinstance(alpha, list) else alpha
    by, rows = found.selection.by, {row.name: row for row in found.rows}
    notes = [
        f"Selected by {by} on {found.selection.examples:,} examples of {found.domain}. On the {found.others:,} others: "
        + "; ".join(f"{name} {100 * row.accuracy:.2f} % right, NLL {row.nll:.4f}" for name, row in rows.items())
        + ". Best and worst are of the walk, known with hindsight."
    ]
    return Chosen(
        "network", f"the point {shown(alpha)}, selected for {found.domain}", (place,), "selected", "", tuple(notes)
    )


def _own_ensemble(terms: Family, answers: Sequence[str], seed: int) -> Chosen:
    """Return the first answer of several networks that a method has."""
    family = terms._replace(walk=plan(terms.shape, seed=seed))
    for answer in map(ANSWERS.find, answers):
        item = answer.item(family)
        if item is not None and len(item.places) > 1 and not item.masks:
            return together(item.places, answer.words(family, item))
    raise ExportError(
        "point='ensemble': this method answers with one network; give the points that answer together, such as "
        "point=[0.1, 0.9] (--point 0.1 --point 0.9)"
    )


def _several(point: Point, shape: Shape) -> list[Any]:
    """Return the points that are meant, which may be one."""
    if isinstance(point, Tensor):
        point = point.tolist()
    if not checks.listed(point):
        return [point]
    found = list(point)  # type: ignore[arg-type]
    alone = shape.point and found and not any(isinstance(each, str) or checks.listed(each) for each in found)
    return [found] if alone else found


def _place(value: Any, shape: Shape) -> Place:
    """Return a point as a number or as coordinates, or say what was expected."""
    expected = f"{', '.join(map(repr, NAMES))}, or {shape.domain}"
    if isinstance(value, str):
        try:
            numbers = [float(part) for part in value.split(",")]
        except ValueError:
            raise ArgumentError(
                f"point={checks.shown(value)}: expected {expected}, such as {_example(shape)}"
            ) from None
        value = numbers[0] if len(numbers) == 1 else numbers
    if isinstance(value, (bool, bytes, os.PathLike)):
        raise ArgumentError(f"point={checks.shown(value)}: expected {expected}")
    try:
        alpha = to_alpha(value, shape, shape.midpoint().double(), outside=False)
        if alpha.shape != shape.point:
            raise ValueError
    except (ValueError, TypeError):
        raise ArgumentError(f"point={checks.shown(value)}: not a point of {shape}; expected {expected}") from None
    found = alpha.tolist()
    return tuple(found) if isinstance(found, list) else float(found)


def _example(shape: Shape) -> str:
    return ",".join(f"{1 / shape.vertices:.2g}" for _ in range(shape.vertices)) if shape.point else "0.3"
