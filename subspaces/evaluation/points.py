"""The points of a subspace that are measured, and the answers: which points answer together, and what these are."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from subspaces.core import randomness
from subspaces.core.shapes import Shape
from subspaces.evaluation.rows import About, Alpha, Answered
from subspaces.text import Catalogue

Place = float | tuple[float, ...]
"""An alpha that can be the key of a dict."""

GRID: tuple[float, ...] = tuple(step / 20 for step in range(21))
PAIR = (0.1, 0.9)  # the two points of a line that stand for all pairs: fixed beforehand, not chosen
PAIRS = 6  # of opposite points along a line or curve on shifted data, the midpoint among them, which are 11 points
RUNS = "runs"  # the answer of several independent runs: their midpoints, averaged


@dataclass(frozen=True)
class Item:
    """Points that are measured together, and the role of the ensemble of them all, if it is wanted."""

    role: str
    places: tuple[Place, ...]
    ensemble: str | None = None

    @property
    def points(self) -> list[Place]:
        """The points, each once."""
        return list(dict.fromkeys(self.places))

    def rows(self, averages: Sequence[str]) -> list[About]:
        """Return what each of its rows is about: the points alone, then all together, averaged in these ways."""
        points = [About("point", self.role, [to_alpha(place)]) for place in self.points]
        if self.ensemble is None:
            return points
        alphas = [to_alpha(place) for place in self.places]
        return points + [About("ensemble", self.ensemble, alphas, each, len(alphas)) for each in averages]


# Points


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


def named(places: Sequence[Any]) -> str:
    """Return points in words."""
    texts = [f"({', '.join(f'{x:.3g}' for x in p)})" if isinstance(p, (tuple, list)) else f"{p:.3g}" for p in places]
    return " and ".join(texts)


# Answers


class Family(NamedTuple):
    """What an answer may depend on: the shape, the items of the walk, and what its networks are called."""

    shape: Shape
    walk: Sequence[Item] = ()
    middle: str = "midpoint"
    vertices: str = "vertices"


@dataclass(frozen=True)
class Answer:
    """One way to answer.

    Args:
        name: in files, options and code.
        meaning: what it is, in half a sentence.
        item: which points answer together, None where a family has no such points.
        words: what it is called, of a family and its item.

    Example:
        >>> from subspaces.evaluation.points import ANSWERS, Answer, Item, kind
        >>> thirds = ANSWERS.add(Answer("thirds", "two points a third from the ends of a line, averaged",
        ...     lambda family: Item("thirds", (1 / 3, 2 / 3), "thirds") if kind(family.shape) == "interval" else None,
        ...     lambda family, item: "ensemble of 1/3 and 2/3"))
    """

    name: str
    meaning: str
    item: Callable[[Family], Item | None]
    words: Callable[[Family, Item], str]


def _pair(family: Family) -> Item | None:
    """Return the pair of the walk that is nearest to the one that is fixed beforehand."""
    if kind(family.shape) != "interval":
        return None
    if not family.walk:
        return Item("along", PAIR, "along")
    pairs = [item for item in family.walk if item.ensemble and len(item.points) == 2]
    return min(pairs, key=lambda item: abs(float(min(item.places)) - PAIR[0]), default=None)  # type: ignore[arg-type]


def _vertices(family: Family) -> Item | None:
    m = family.shape.vertices
    if kind(family.shape) == "interval" and m == 2:
        return Item("along", (0.0, 1.0), "along")
    if kind(family.shape) != "simplex":
        return None
    return Item("vertex", tuple(barycentric([index], m) for index in range(m)), "vertex")


ANSWERS: Catalogue[Answer] = Catalogue(
    "answer",
    [
        Answer(
            "midpoint",
            "the one network in the middle of the subspace",
            lambda family: Item("midpoint", (middle_of(family.shape),)),
            lambda family, item: family.middle,
        ),
        Answer(
            "pair",
            "two points near the ends of a line or curve, averaged",
            _pair,
            lambda family, item: f"ensemble of {named(item.places)}",
        ),
        Answer(
            "vertices",
            "all vertices, averaged",
            _vertices,
            lambda family, item: f"ensemble of {len(item.places)} {family.vertices}",
        ),
        Answer(
            "random",
            "random points of a simplex, averaged",
            lambda family: next((item for item in family.walk if item.ensemble == "random"), None),
            lambda family, item: f"ensemble of {len(item.places)} random points",
        ),
    ],
)


def usual(shape: Shape) -> tuple[str, ...]:
    """Return the answers of a family that no method speaks for."""
    found = {"single": ("midpoint",), "interval": ("midpoint", "pair")}
    return found.get(kind(shape), ("midpoint", "vertices", "random"))


def items_of(family: Family, names: Sequence[str], averages: Sequence[str]) -> tuple[list[Item], list[Answered]]:
    """Return the items of the walk and of some answers, none twice, and how a family answers so."""
    items, answers = list(family.walk), []
    for answer in map(ANSWERS.find, names):
        if (item := answer.item(family)) is not None:
            known = [row for each in items for row in each.rows(averages)]
            items += [] if all(row in known for row in item.rows(averages)) else [item]
            about = item.rows(averages[:1])[-1]  # all points together, or the only one
            words = answer.words(family, item)
            answers.append(Answered(answer.name, words, about.networks, about.role, about.alphas, about.average))
    return items, answers


def thinned(shape: Shape, items: Sequence[Item], answers: Sequence[Answered], average: str) -> list[Item]:
    """Return the items measured on shifted data: all answers, and some pairs of a line, or vertices and midpoint."""
    if kind(shape) == "interval":
        walk = [item for item in items if item.ensemble == "along"]
        last = len(walk) - 1
        kept = [walk[round(step * last / (PAIRS - 1))] for step in range(PAIRS)] if len(walk) > PAIRS else walk
    else:
        kept = [item for item in items if item.role in ("vertex", "midpoint")]
    return [item for item in items if item in kept or any(a.is_of(r) for r in item.rows([average]) for a in answers)]
