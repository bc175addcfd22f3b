"""The answers: which networks of a family answer, averaged how, what that is called and what it costs at test time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from subspaces.core.shapes import Shape
from subspaces.evaluation.points import Item, barycentric, kind, middle_of
from subspaces.evaluation.rows import Answered
from subspaces.text import Catalogue

RUNS = "runs"  # the answer of several independent runs: their midpoints, averaged
PAIRS = 6  # of opposite points along a line or curve on shifted data, the midpoint among them, which are 11 points
PAIR = (0.1, 0.9)  # the two points of a line that stand for all pairs: fixed beforehand, not chosen


class Family(NamedTuple):
    """What an answer may depend on: the shape, the items of the walk, and what its networks are called."""

    shape: Shape
    walk: Sequence[Item] = ()
    middle: str = "midpoint"
    vertices: str = "vertices"
    masks: int = 20


@dataclass(frozen=True)
class Answer:
    """One way to answer.

    Args:
        name: in files, options and code.
        meaning: what it is, in half a sentence.
        item: which points answer together, None where a family has no such points.
        words: what it is called, of a family and its item.

    Example:
        >>> ANSWERS.add(Answer("thirds", "two points a third from the ends of a line, averaged",
        ...     lambda family: Item("thirds", (1 / 3, 2 / 3), "thirds") if kind(family.shape) == "interval" else None,
        ...     lambda family, item: "ensemble of 1/3 and 2/3"))
    """

    name: str
    meaning: str
    item: Callable[[Family], Item | None]
    words: Callable[[Family, Item], str]

    def of(self, family: Family, average: str) -> Answered | None:
        """Return how a family answers so, in words; members are averaged in that way."""
        item = self.item(family)
        if item is None:
            return None
        about = item.rows([average])[-1]  # all points together, or the only one
        words = self.words(family, item)
        return Answered(self.name, words, about.networks, about.role, about.alphas, about.average)


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


def named(places: Sequence[Any]) -> str:
    """Return points in words."""
    texts = [f"({', '.join(f'{x:.3g}' for x in p)})" if isinstance(p, (tuple, list)) else f"{p:.3g}" for p in places]
    return " and ".join(texts)


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
        Answer(
            "dropout",
            "the midpoint asked several times with dropout on (MC-dropout), averaged",
            lambda family: Item("dropout", (middle_of(family.shape),), "dropout", masks=family.masks),
            lambda family, item: f"MC-dropout, {item.masks} passes",
        ),
    ],
)


def of_runs(size: int) -> str:
    """Return what an ensemble of so many runs is called."""
    return f"ensemble of {size} runs"


def usual(shape: Shape) -> tuple[str, ...]:
    """Return the answers of a family that no method speaks for."""
    found = {"single": ("midpoint",), "interval": ("midpoint", "pair")}
    return found.get(kind(shape), ("midpoint", "vertices", "random"))


def items_of(family: Family, names: Sequence[str], averages: Sequence[str]) -> tuple[list[Item], list[Answered]]:
    """Return the items of the walk and of some answers, none twice, and how a family answers so."""
    items, wanted = list(family.walk), [ANSWERS.find(name) for name in names]
    for item in (answer.item(family) for answer in wanted):
        if item is not None:
            known = [row for each in items for row in each.rows(averages)]
            items += [] if all(row in known for row in item.rows(averages)) else [item]
    answers = [answer.of(family, averages[0]) for answer in wanted]
    return items, [each for each in answers if each is not None]


def thinned(shape: Shape, items: Sequence[Item], answers: Sequence[Answered], average: str) -> list[Item]:
    """Return the items measured on shifted data: all answers, and some pairs of a line, or vertices and midpoint."""
    if kind(shape) == "interval":
        walk = [item for item in items if item.ensemble == "along"]
        last = len(walk) - 1
        kept = [walk[round(step * last / (PAIRS - 1))] for step in range(PAIRS)] if len(walk) > PAIRS else walk
    else:
        kept = [item for item in items if item.role in ("vertex", "midpoint")]
    return [item for item in items if item in kept or any(a.is_of(r) for r in item.rows([average]) for a in answers)]
