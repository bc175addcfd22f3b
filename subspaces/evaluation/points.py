"""The points of a subspace that are measured: a grid and its pairs on a line or curve, many points of a simplex."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from subspaces.core import randomness
from subspaces.core.shapes import Shape
from subspaces.evaluation.rows import About, Alpha

Place = float | tuple[float, ...]
"""An alpha that can be the key of a dict."""

GRID: tuple[float, ...] = tuple(step / 20 for step in range(21))


@dataclass(frozen=True)
class Item:
    """Points that are measured together, and the role of the ensemble of them all, if it is wanted."""

    role: str
    places: tuple[Place, ...]
    ensemble: str | None = None
    masks: int = 0  # passes with dropout on

    @property
    def points(self) -> list[Place]:
        """The points, each once."""
        return list(dict.fromkeys(self.places))

    def rows(self, averages: Sequence[str]) -> list[About]:
        """Return what each of its rows is about: the points alone, then all together, averaged in these ways."""
        points = [About("point", self.role, [to_alpha(place)]) for place in self.points if not self.masks]
        if self.ensemble is None:
            return points
        alphas, count = [to_alpha(place) for place in self.places], self.masks or len(self.places)
        return points + [About("ensemble", self.ensemble, alphas, each, count) for each in averages]


def kind(shape: Shape) -> Literal["single", "interval", "simplex"]:
    """Say what alpha is: nothing that matters, a number, or barycentric coordinates."""
    if shape.vertices == 1:
        return "single"
    return "simplex" if shape.point else "interval"


def plan(
    shape: Shape, *, grid: Sequence[float] = GRID, random: int = 6, triangle: int = 6, seed: int = 0
) -> list[Item]:
    """Return the points of a shape that are measured.

    On a line or curve these are the `grid`, each with its opposite 1 - alpha; on a simplex the vertices, the midpoint,
    the middles of the edges, `random` points that `seed` draws, and with three vertices a grid that cuts an edge into
    `triangle` pieces.
    """
    if kind(shape) == "single":
        return [Item("midpoint", (0.0,))]
    if kind(shape) == "simplex":
        return _inside(shape, random, triangle, seed)
    lower = sorted({min(_rounded(alpha), _rounded(1 - alpha)) for alpha in grid} | {0.5})
    return [Item("midpoint" if alpha == 0.5 else "along", (alpha, _rounded(1 - alpha)), "along") for alpha in lower]


def _rounded(alpha: float) -> float:
    return round(alpha, 9) + 0.0  # 1 - 0.95 is the same point as 0.05, and -0.0 as 0.0


def _inside(shape: Shape, random: int, triangle: int, seed: int) -> list[Item]:
    m = shape.vertices
    vertices = [barycentric([index], m) for index in range(m)]
    roles: dict[Place, str] = {barycentric(range(m), m): "midpoint"}
    for ends in itertools.combinations(range(m), 2):
        roles.setdefault(barycentric(ends, m), "edge")
    if m == 3 and triangle:
        for i, j in itertools.product(range(triangle + 1), repeat=2):
            if i + j <= triangle:
                roles.setdefault((i / triangle, j / triangle, (triangle - i - j) / triangle), "grid")
    items = [Item("vertex", tuple(vertices), "vertex")]
    items += [Item(role, (place,)) for place, role in roles.items() if place not in vertices]
    if random:
        state = randomness.stream(seed, "points")
        drawn = shape.sample((random,), lambda size: randomness.uniform(state, size))
        items.append(Item("random", tuple(map(tuple, drawn.tolist())), "random" if random > 1 else None))
    return items


def barycentric(vertices: Iterable[int], m: int) -> tuple[float, ...]:
    """Return equal shares of some of m vertices."""
    chosen = set(vertices)
    return tuple(1 / len(chosen) if index in chosen else 0.0 for index in range(m))


def middle_of(shape: Shape) -> Place:
    """Return the midpoint."""
    return 0.0 if kind(shape) == "single" else to_place(shape.midpoint().tolist())


def coefficients(shape: Shape, place: Place) -> list[float]:
    """Return c(alpha)."""
    c: list[float] = shape.coefficients(torch.tensor(place, dtype=torch.float64)).tolist()
    return c


def to_alpha(place: Place) -> Alpha:
    """Return a point as it stands in a file."""
    return list(place) if isinstance(place, tuple) else place


def to_place(alpha: Alpha) -> Place:
    """Return a point of a file."""
    return tuple(alpha) if isinstance(alpha, list) else alpha


def outline(shape: Shape) -> list[list[float]] | None:
    """Return coefficients along what one would draw of a subspace: the path, or the triangle's edge; else None."""
    if kind(shape) == "interval":
        return [coefficients(shape, step / 40) for step in range(41)]
    if kind(shape) == "simplex" and shape.vertices == 3:
        return [list(barycentric([index], 3)) for index in (0, 1, 2, 0)]
    return None


def vertex_names(shape: Shape) -> list[str]:
    """Return what to call each vertex."""
    m = shape.vertices
    if kind(shape) == "simplex":
        return [f"vertex {index + 1}" for index in range(m)]
    bends = ["bend"] if m == 3 else [f"bend {index + 1}" for index in range(m - 2)]
    return ["network"] if m == 1 else ["α = 0", *bends, "α = 1"]
