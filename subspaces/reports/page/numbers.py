"""Numbers, seeds and tables as the page shows them."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from subspaces.evaluation.comparing import Group
from subspaces.evaluation.group_answers import GroupAnswer
from subspaces.evaluation.rows import Description
from subspaces.evaluation.statistics import Spread
from subspaces.text import listed

NONE = "–"
NUMBER = re.compile(r"[–+−-]?[\d.]*( ± [\d.]+)?(\u00a0?%|\u00a0(s|min|h))?")


@dataclass(frozen=True)
class Table:
    """A table of texts, of which the first of each row is its head; rows stand below the names of their groups."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    groups: Sequence[str] = ()  # of each row
    best: set[tuple[int, int]] = field(default_factory=set)  # row and column
    titles: dict[str, str] = field(default_factory=dict)  # what a column means

    @cached_property
    def numbers(self) -> list[bool]:
        """Whether a column holds numbers alone."""
        return [at > 0 and all(NUMBER.fullmatch(row[at]) for row in self.rows) for at in range(len(self.head))]


def places(metric: Description, images: int) -> int:
    """Return the decimal places that a split of so many examples can tell apart."""
    return (1 if images < 5000 else 2) if metric.percent else 3


def capital(text: str) -> str:
    """Return text with a capital letter."""
    return text[:1].upper() + text[1:]


def unit(metric: Description) -> str:
    """Return the unit of a metric after a space that does not break."""
    return "\u00a0%" if metric.percent else ""


def head(metrics: Iterable[Description]) -> list[str]:
    """Return the heads of the columns of some metrics."""
    return [capital(each.label) + unit(each) for each in metrics]


def better(metric: Description) -> str:
    """Return which way a metric is good; nothing where it has a goal."""
    return "" if metric.goal is not None else f"; {'lower' if metric.lower_is_better else 'higher'} is better"


def shown(values: Spread | float | None, metric: Description, images: int) -> str:
    """Return mean ± standard deviation without the unit; a dash of what is not known."""
    found = values if isinstance(values, Spread) else Spread([], math.nan if values is None else values, None)
    if math.isnan(found.mean):
        return NONE
    digits = places(metric, images)
    around = "" if found.std is None else f" ± {metric.scale * found.std:.{digits}f}"
    return f"{metric.scale * found.mean:.{digits}f}{around}"


def signed(text: str) -> str:
    """Return a number with its sign; zero has none."""
    number = text.partition(" ")[0]
    plain = NONE if number == NONE else text.replace("-", "−", 1)
    return f"+{plain}" if number != NONE and float(number) > 0 else plain


def rounded(value: Any, digits: int = 6) -> Any:
    """Return numbers with so many digits, however deep they lie; what is not finite becomes None."""
    if isinstance(value, dict):
        return {name: part if name == "alpha" else rounded(part, digits) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part, digits) for part in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def duration(seconds: float | None) -> str:
    """Return a time in the unit that suits it."""
    if seconds is None:
        return NONE
    size, name = (1, "s") if seconds < 100 else (60, "min") if seconds < 6000 else (3600, "h")
    return f"{seconds / size:.2g}\u00a0{name}" if seconds / size < 10 else f"{seconds / size:.0f}\u00a0{name}"


def seeded(seeds: Iterable[int]) -> str:
    """Return seeds in words."""
    several = sorted(seeds)
    return f"{'seed' if len(several) == 1 else 'seeds'} {listed(map(str, several))}"


def trained_with(group: Group) -> str:
    """Return the seeds of a group in words; a family that is no run has none."""
    return "no run" if group.training is None else seeded(group.seeds)


def way(answer: GroupAnswer) -> str:
    """Return an answer in words, with its seeds where they are not those of its group."""
    return answer.words if answer.seeds == answer.group.seeds else f"{answer.words} ({seeded(answer.seeds)})"
