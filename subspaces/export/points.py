"""The points of a family that a user names, for an export."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.core.alpha import to_alpha
from subspaces.core.selection.selection import shown
from subspaces.core.shapes import Bezier, Line, Shape, Simplex
from subspaces.errors import ArgumentError
from subspaces.export import ExportError
from subspaces.export.metadata import Kind

NAMES = ("midpoint", "selected", "ensemble", "family")
PAIR = (0.1, 0.9)  # of a line or curve, as evaluation measures it
Point = str | float | Sequence[Any] | Mapping[str, Any] | Tensor
"""A name, a number, coordinates, a point for each layer, or several points that are averaged."""


@dataclass(frozen=True)
class Chosen:
    """The points whose networks are exported."""

    kind: Kind  # one network, several that are averaged, or all points, with alpha as an input
    words: str  # what they are called
    short: str = ""  # the same, in the name of a file
    alphas: tuple[Any, ...] = ()  # numbers, coordinates, or points for each layer by name; none without a family
    note: str = ""  # for the card


def choose(point: Any, shape: Shape, middle: str = "midpoint") -> Chosen:
    """Return the points that a user names; `middle` is what the midpoint of the family is called."""
    name = point if isinstance(point, str) else ""
    if name == "midpoint":
        return Chosen("network", middle, name, (0.0 if shape.vertices == 1 else shape.midpoint().tolist(),))
    if shape.vertices == 1:
        raise ExportError(f"point={checks.shown(point)}: there is one network only; expected 'midpoint'")
    if name == "family":
        if not isinstance(shape, (Line, Bezier, Simplex)):
            raise ExportError(
                f"point='family': expected a Line, Bezier or Simplex, and {shape} is none; give one point"
            )
        return Chosen("family", f"every point of {shape}", name)
    if name == "selected":
        raise ExportError("point='selected': a run keeps what was selected; expected family.select(…).alpha")
    if name == "ensemble":
        return together(torch.eye(shape.vertices).tolist() if shape.point else PAIR)
    if isinstance(point, Mapping) and point:
        return Chosen("network", "a point for each layer", "layers", (dict(point),))
    alphas = [_alpha(each, shape) for each in _several(point, shape)]
    if not alphas:
        raise ArgumentError(f"point={checks.shown(point)}: expected one point or more, each {shape.domain}")
    if len(alphas) > 1:
        return together(alphas)
    short = "-".join(f"{x:g}" for x in (alphas[0] if shape.point else alphas))
    return Chosen("network", f"the point {shown(alphas[0])}", f"at-{short}", tuple(alphas))


def together(alphas: Sequence[Any], words: str = "") -> Chosen:
    """Return several points that are averaged."""
    words = words or f"ensemble of {' and '.join(map(shown, alphas)) if len(alphas) < 4 else f'{len(alphas)} points'}"
    return Chosen("ensemble", words, f"ensemble-of-{len(alphas)}", tuple(alphas))


def _several(point: Any, shape: Shape) -> list[Any]:
    found = point.tolist() if isinstance(point, Tensor) else point
    if not checks.listed(found):
        return [found]
    alone = shape.point and len(found) and not any(isinstance(each, str) or checks.listed(each) for each in found)
    return [found] if alone else list(found)


def _alpha(value: Any, shape: Shape) -> Any:
    """Return a point as a number or as coordinates."""
    try:
        found = [float(part) for part in value.split(",")] if isinstance(value, str) else value
        if isinstance(found, (bool, bytes)):
            raise ValueError
        alpha = to_alpha(found, shape, shape.midpoint().double(), outside=False)
        return alpha.reshape(shape.point).tolist()
    except (ValueError, TypeError, RuntimeError):
        example = ",".join([f"{1 / shape.vertices:.2g}"] * shape.vertices) if shape.point else "0.3"
        raise ArgumentError(
            f"point={checks.shown(value)}: not a point of {shape}; expected {', '.join(map(repr, NAMES))}, or "
            f"{shape.domain}, such as {example}"
        ) from None
