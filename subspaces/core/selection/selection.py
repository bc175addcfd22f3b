"""`Selection`: the point that was chosen, and what is known of how good it is."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from subspaces.core.alpha import Alpha
from subspaces.core.selection import criteria

SHOWN = 6  # layers or vertices in a line of text


@dataclass(frozen=True)
class Searched:
    """A point that was looked at, and its value on the examples that it was chosen on."""

    alpha: Alpha
    value: float


@dataclass(frozen=True)
class Selection:
    """The point of a family that `family.select` chose for a new domain; `family.at(selection.alpha)` is its network.

    `midpoint`, `value`, `best` and `worst` are means over the given examples: of the midpoint, the chosen point, and
    the best and worst that were searched. All but the midpoint's flatter, because they are of points that were chosen
    on these examples. `gain` does not: it is what the whole procedure gains over the midpoint on examples that it has
    not seen, by cross-validation, with its standard error; above 0 is better, whatever is compared. None where there
    was no cross-validation.
    """

    alpha: Alpha
    by: str
    labelled: bool
    examples: int
    midpoint: float
    value: float
    best: Searched
    worst: Searched
    gain: float | None
    error: float | None
    moved: bool

    def __str__(self) -> str:
        words = partial(criteria.words, self.by)
        labels = "labelled examples" if self.labelled else "examples without labels"
        where = f"the point {shown(self.alpha)}" if self.moved else f"the midpoint, {shown(self.alpha)}"
        why = "" if self.moved else ": no other point is better for certain"
        lines = [
            f"chosen by {self.by} on {self.examples:,} {labels}: {where}{why}",
            f"there: {words(self.value)}, and {words(self.midpoint)} at the midpoint",
        ]
        if self.gain is not None and self.error is not None:
            gain = f"{words(self.gain)} ± {words(self.error)}"
            lines.append(f"gain over the midpoint to expect on new examples: {gain} (cross-validated)")
        best, worst = (f"{words(each.value)} at {shown(each.alpha)}" for each in (self.best, self.worst))
        lines.append(f"of the points searched, on the same examples, which flatters: best {best}; worst {worst}")
        if not self.labelled:
            lines.append("without labels: a lower entropy is surer, and need not be right more often")
        return "\n".join(lines)


def shown(alpha: Any) -> str:
    """Return a point as text, cut where it has many parts."""
    if isinstance(alpha, dict):
        parts = [f"{name or 'network'}: {shown(each)}" for name, each in alpha.items()]
    elif isinstance(alpha, (list, tuple)):
        parts = [shown(each) for each in alpha]
    else:
        return f"{float(alpha):.3g}"
    more = f", and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return f"({', '.join(parts[:SHOWN])}{more})"
