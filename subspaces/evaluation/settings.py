"""The settings of an evaluation, with help texts for the command line."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from torch import nn

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation import shifted_data
from subspaces.evaluation.answers import ANSWERS
from subspaces.evaluation.points import GRID
from subspaces.text import nearest, one_of

Precision = Literal["auto", "float32", "bfloat16"]
PASSES = 20  # of MC-dropout
POINTS = 10_001  # of a grid, or drawn at random: days on any device
TRIANGLE = 140  # pieces of an edge, which are 10,011 points
BATCHES = (1, 10**6)

POINTS_PANEL = "points: where the subspace is measured"
PLANE_PANEL = "plane: error and loss around three networks"
SHIFT_PANEL = "shift: test images that are corrupted, or none of the classes"


def _setting(default: Any, text: str, limits: tuple[int, int] | None = None, **more: Any) -> Any:
    return dataclasses.field(default=default, metadata={"help": text, "limits": limits, **more})


_point, _plane, _shift = (partial(_setting, panel=panel) for panel in (POINTS_PANEL, PLANE_PANEL, SHIFT_PANEL))


@dataclass(frozen=True)
class Settings:
    """The settings of `evaluate`: points, planes and shifted data."""

    grid: Sequence[float] = _point(
        GRID, "Points of a line or curve, each with its opposite 1 - alpha; by default 0, 0.05, …, 1."
    )
    random: int = _point(6, "Random points of a simplex, and in their ensemble.", (0, POINTS))
    triangle: int = _point(6, "Grid on a triangle: into how many pieces an edge is cut; 0 for none.", (0, TRIANGLE))
    answers: Sequence[str] = _point(
        (), "How the networks answer, once for each way; by default as their method does.", choices=lambda: ANSWERS
    )
    dropout_passes: int = _point(PASSES, "How often MC-dropout asks a network that has dropout.", (1, 10_000))
    plane: bool = _plane(False, "Also the plane through the first three vertices.")
    through: Sequence[Any] = _plane((), "A plane through networks of other runs.")
    cells: int = _plane(21, "Cells of the plane in each direction.", (2, 501))
    plane_statistics_batches: int = _plane(50, "Batches for the batch-norm statistics of a cell.", BATCHES)
    corruptions: Any = _shift((), "Shifted test examples: names of corruptions, or loaders.")
    outliers: Any = _shift((), "Examples of no known class: names of data sets, or loaders.")
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
        def keep(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        def several(name: str, check: Callable[[str, Any], Any], expected: str, most: int | None = None) -> None:
            found = checks.several(name, getattr(self, name), expected, most)
            keep(name, tuple(check(name, each) for each in found))

        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if entry.metadata["limits"] is not None and not (value is None and entry.default is None):
                keep(entry.name, checks.whole(entry.name, value, *entry.metadata["limits"]))
        checks.flag("plane", self.plane)
        one_of("precision", self.precision, get_args(Precision))
        keep("corruptions", shifted_data.wanted(self.corruptions))
        keep("outliers", shifted_data.wanted_outliers(self.outliers))
        several("grid", checks.number, "a list of finite numbers, such as [0, 0.5, 1]", POINTS)
        several("answers", lambda _, name: ANSWERS.find(name).name, "a list of answers, such as ['midpoint']")
        several("through", _network, "a list of run folders, such as ['runs/a', 'runs/b']")
        if len(self.through) > 3:
            raise ArgumentError(f"through={list(map(str, self.through))}: a plane goes through three networks")

    @property
    def wants_plane(self) -> bool:
        """Whether a plane is measured."""
        return self.plane or bool(self.through)


def _network(name: str, value: Any) -> Any:
    return value if isinstance(value, nn.Module) else checks.folder(name, value)
