"""The settings of an evaluation, with help texts for the command line, and what may be passed for shifted data."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from torch import nn

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation.corruptions import CORRUPTIONS, SEVERITIES
from subspaces.evaluation.points import ANSWERS, GRID
from subspaces.text import nearest, one_of

Precision = Literal["auto", "float32", "bfloat16"]
POINTS = 10_001  # of a grid, or drawn at random: days on any device
TRIANGLE = 140  # pieces of an edge, which are 10,011 points
BATCHES = (1, 10**6)

POINTS_PANEL = "points: where the subspace is measured"
PLANE_PANEL = "plane: error and loss around three networks"
SHIFT_PANEL = "shift: test images that are corrupted, or none of the classes"
EXPECTED = "names such as ['fog', 'snow'], 'all', 'extra', a Corruptions, or loaders such as {'rain': {1: loader}}"
EXTRA = "extra"  # the group of corruptions that are kept for validation
Given = dict[tuple[str, int], Iterable[Any]]
"""Loaders by name and severity, 0 where there is none."""
Outliers = dict[str, Iterable[Any]]
"""Loaders by name."""


def _setting(default: Any, text: str, limits: tuple[int, int] | None = None, **more: Any) -> Any:
    return dataclasses.field(default=default, metadata={"help": text, "limits": limits, **more})


_point, _plane, _shift = (partial(_setting, panel=panel) for panel in (POINTS_PANEL, PLANE_PANEL, SHIFT_PANEL))


@dataclass(frozen=True)
class Settings:
    """The settings of `evaluate`: points, planes and shifted data."""

    grid: Sequence[float] = _point(
        GRID, "Points of a line or curve, or beyond its ends, each with 1 - alpha; by default 0, 0.05, …, 1."
    )
    random: int = _point(6, "Random points of a simplex, and in their ensemble.", (0, POINTS))
    triangle: int = _point(6, "Grid on a triangle: into how many pieces an edge is cut; 0 for none.", (0, TRIANGLE))
    answers: Sequence[str] = _point(
        (), "How the networks answer, once for each way; by default as their method does.", choices=lambda: ANSWERS
    )
    plane: bool = _plane(False, "Also the plane through the first three vertices.")
    through: Sequence[Any] = _plane((), "A plane through networks of other runs.")
    cells: int = _plane(21, "Cells of the plane in each direction.", (2, 501))
    plane_statistics_batches: int = _plane(50, "Batches for the batch-norm statistics of a cell.", BATCHES)
    corruptions: Any = _shift(None, "Shifted test examples: names of corruptions, or loaders.")
    outliers: Any = _shift(None, "Examples of no known class: loaders.")
    statistics_batches: int | None = _setting(
        None, "Batches for the batch-norm statistics of a point; by default all training images.", BATCHES
    )
    precision: Precision = _setting("auto", "auto: bfloat16 on a GPU.")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Settings":
        """Return settings by name; an unknown one is an error that names the nearest."""
        known = [entry.name for entry in dataclasses.fields(cls)]
        for name in given:
            if name not in known:
                raise ArgumentError(f"{name}=…: no such setting; {nearest(name, known)}")
        return cls(**{name: value for name, value in given.items() if not (name == "grid" and value is None)})

    def __post_init__(self) -> None:
        checks.flag("plane", self.plane)
        one_of("precision", self.precision, get_args(Precision))
        grid = checks.several("grid", self.grid, "a list of finite numbers, such as [0, 0.5, 1]", POINTS)
        answers = checks.several("answers", self.answers, "a list of answers, such as ['midpoint']")
        through = checks.several("through", self.through, "a list of run folders, such as ['runs/a', 'runs/b']")
        if len(through) > 3:
            raise ArgumentError(f"through={list(map(str, through))}: a plane goes through three networks")
        found: dict[str, Any] = {
            "grid": tuple(checks.number("grid", each) for each in grid),
            "answers": tuple(ANSWERS.find(name).name for name in answers),
            "through": tuple(e if isinstance(e, nn.Module) else checks.folder("through", e) for e in through),
            "corruptions": _wanted_corruptions(self.corruptions),
            "outliers": _wanted_outliers(self.outliers),
        }
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if entry.metadata["limits"] is not None and not (value is None and entry.default is None):
                found[entry.name] = checks.whole(entry.name, value, *entry.metadata["limits"])
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def wants_plane(self) -> bool:
        """Whether a plane is measured."""
        return self.plane or bool(self.through)


# Shifted data and outliers


@dataclass(frozen=True)
class Corruptions:
    """Corruptions of the test images.

    Args:
        names: of corruptions; "all" is the usual fifteen, "extra" adds the four that are kept for validation.
        severities: from 1 to 5.
        mean, std: the constants that your own loader normalises with; a run knows its own. By default images are
            uint8, or numbers from 0 to 1.
        seed: of the random numbers of noise and the like, the same for every network.

    Example:
        >>> shifted = ss.Corruptions(["fog", "snow"], severities=[1, 3, 5], mean=(0.5,), std=(0.25,))
        >>> evaluation = ss.evaluate(family, test=image_loader, corruptions=shifted)
    """

    names: str | Sequence[str] = "all"
    severities: Sequence[int] = SEVERITIES
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole = {checks.whole("severities", each, 1, 5) for each in _some("severities", self.severities, "[1, 3, 5]")}
        found: dict[str, Any] = {"names": self._named(), "severities": tuple(sorted(whole))}
        for name in ("mean", "std"):
            if (given := getattr(self, name)) is not None:
                numbers = _some(name, [given] if isinstance(given, (int, float)) else given, "one for each channel")
                found[name] = tuple(checks.number(name, each) for each in numbers)
        if (self.mean is None) != (self.std is None) or min(found.get("std", (1.0,))) <= 0:
            raise ArgumentError(f"mean={self.mean}, std={self.std}: expected both, std above 0")
        found["seed"] = checks.whole("seed", self.seed, 0, 2**31)
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def _named(self) -> tuple[str, ...]:
        given = self.names
        if isinstance(given, str) and given in ("all", EXTRA):
            return tuple(each.name for each in CORRUPTIONS.values() if given == EXTRA or each.group != EXTRA)
        chosen = [given] if isinstance(given, str) else _some("names", given, "['fog', 'snow'], or 'all'")
        for name in chosen:
            if not isinstance(name, str) or name not in CORRUPTIONS:
                raise ArgumentError(f"corruptions={checks.shown(name)}: {nearest(name, ('all', EXTRA, *CORRUPTIONS))}")
        return tuple(name for name in CORRUPTIONS if name in chosen)

    @property
    def source(self) -> str:
        """The origin of the images, for the `source` column."""
        return "made" if self.seed == 0 else f"made, seed {self.seed}"


def _some(name: str, value: Any, example: str) -> list[Any]:
    found = checks.several(name, value, f"a list, such as {example}")
    if not found:
        raise ArgumentError(f"{name}={checks.shown(value)}: expected at least one, such as {example}")
    return found


def _wanted_corruptions(value: Any) -> Corruptions | Given | None:
    """Parse `corruptions=`."""
    if value is None or isinstance(value, Corruptions):
        return value
    if isinstance(value, str) or checks.listed(value):
        return Corruptions(value)
    if not isinstance(value, Mapping) or not value:
        raise ArgumentError(f"corruptions={checks.shown(value)}: expected {EXPECTED}")
    found: Given = {}
    for name, each in value.items():
        where = f"corruptions={{{name!r}: …}}"
        for severity, loader in (each if isinstance(each, Mapping) else {0: each}).items():
            found[str(name), checks.whole(f"{where}: severity", severity, 0)] = checks.batches(where, loader)
    return found


def _wanted_outliers(value: Any) -> Outliers:
    """Parse `outliers=`."""
    if isinstance(value, Mapping):
        return {str(name): checks.batches(f"outliers={{{name!r}: …}}", loader) for name, loader in value.items()}
    return {} if value is None else {"outliers": checks.batches("outliers", value)}
