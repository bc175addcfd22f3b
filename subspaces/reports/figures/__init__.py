"""The figures by name. matplotlib is imported when one is drawn."""

import importlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from subspaces.errors import ArgumentError, MissingPackageError
from subspaces.evaluation.comparing import Group, groups_of
from subspaces.evaluation.evaluation import Evaluation
from subspaces.text import nearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".pdf")


@dataclass(frozen=True)
class Kind:
    """A figure that can be drawn, by the function of its name in a module of this package."""

    module: str
    description: str
    metric: str | None = None  # what --metric changes, in words; None: nothing
    evaluated: bool = True


_METRIC = "--metric says which."
KINDS = {
    "along": Kind("lines", "A metric of the points of lines and curves, and of the ensembles of α and 1−α.", _METRIC),
    "betas": Kind("lines", "The same for runs that differ in β, with a panel for every method.", _METRIC),
    "plane": Kind("plane", "Contours of error and loss on planes through three networks.", "--metric draws one."),
    "training": Kind("lines", "L2 distance and cos² between the vertices over the epochs.", evaluated=False),
    "vertices": Kind(
        "lines",
        "Accuracy and ECE (or the first two metrics) against the number of vertices m, or of members of an ensemble.",
        "--metric draws another.",
    ),
    "reliability": Kind("bars", "Accuracy against confidence, and how often each confidence occurs."),
    "shift": Kind(
        "bars",
        "The relative change (b − a)/a from test images to shifted ones, by corruption and on average over severities, "
        "minus that of standard training if it is among the runs; stars are the best points of lines.",
        "--metric says of what.",
    ),
    "shift-along": Kind("lines", "The same as `along` on shifted images, a panel for every corruption.", _METRIC),
}


def find(name: str) -> Kind:
    """Return the figure of that name, or list them all and name the nearest."""
    if name not in KINDS:
        raise ArgumentError(f"no figure {name!r}: {nearest(name, KINDS)} (figures: {', '.join(KINDS)})")
    return KINDS[name]


def check(name: str, metric: str | None) -> None:
    """Refuse a figure that there is not, and a metric for one without a choice of it."""
    if find(name).metric is None and metric is not None:
        raise ArgumentError(f"metric={metric!r}: the figure {name!r} has no choice of a metric, leave it out")


def draw(
    name: str, evaluations: Evaluation | Iterable[Evaluation], *, metric: str | None = None, split: str = "test"
) -> "Figure":
    """Draw a figure of evaluations on one data set."""
    check(name, metric)
    return draw_groups(name, groups_of(listed(evaluations)), metric, split)


def listed(evaluations: Evaluation | Iterable[Evaluation]) -> list[Evaluation]:
    """Return one evaluation or several as a list, and refuse none."""
    found = [evaluations] if isinstance(evaluations, Evaluation) else list(evaluations)
    if not found:
        raise ArgumentError("no evaluations were given: expected one or more")
    return found


def draw_groups(name: str, groups: Sequence[Group], metric: str | None = None, split: str = "test") -> "Figure":
    """Draw a figure of groups of runs that were read already."""
    try:
        module = importlib.import_module(f"{__name__}.{find(name).module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise MissingPackageError("figures need matplotlib: pip install 'subspaces[figures]'") from None
    with module.style.styled():
        figure: Figure = getattr(module, name.replace("-", "_"))(groups, metric, split)
    module.style.settle(figure)
    return figure


def outputs(name: str, out: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the files that a figure goes to: `out`, or NAME.png and NAME.pdf."""
    find(name)
    if out is None:
        return [Path(f"{name}{ending}") for ending in FORMATS]
    path = Path(out)
    if path.suffix.lower() not in FORMATS or path.is_dir() or not path.parent.is_dir():
        raise ArgumentError(f"{path}: expected a name that ends in {' or '.join(FORMATS)} in an existing folder")
    return [path]


def save(figure: "Figure", path: Path) -> None:
    """Write a figure to a file, as its ending says."""
    importlib.import_module(f"{__name__}.style").save(figure, path)
