"""What an evaluation measures, checked before anything is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from subspaces import values
from subspaces.evaluation.bench import Bench
from subspaces.evaluation.points import GRID
from subspaces.evaluation.through import Name
from subspaces.text import nearest
from subspaces.training.config import Precision

ChooseOn = Literal["auto", "validation", "test"]
POINTS = 10_001  # of a grid, or drawn at random: days on any device
MOST = {  # what can be asked for
    "random": (0, POINTS),
    "triangle": (0, 140),  # which are 10,011 points
    "cells": (2, 501),  # in each direction
    "statistics_batches": (1, 10**6),
    "plane_statistics_batches": (1, 10**6),
}
CHECKS = 100


@dataclass(frozen=True)
class Settings:
    """The points, the plane, and the split on which anything is chosen; `evaluate` says what each of them is."""

    grid: Sequence[float] = GRID
    random: int = 6
    triangle: int = 6
    split: ChooseOn = "auto"
    statistics_batches: int | None = None
    plane: bool = False
    through: Sequence[Name] = ()
    cells: int = 21
    plane_statistics_batches: int = 50
    check_statistics: Sequence[int] = ()
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        if self.split not in get_args(ChooseOn):
            raise ValueError(f"split={values.shown(self.split)}: {nearest(self.split, get_args(ChooseOn))}")
        self._set("grid", values.number, "a list of finite numbers, such as [0, 0.5, 1]", POINTS)
        for name, (least, most) in MOST.items():
            value = getattr(self, name)
            if value is not None or name != "statistics_batches":
                values.whole(name, value, least, most)
        batches = partial(values.whole, least=1, most=10**6, beside=" batches each")
        self._set("check_statistics", batches, "a list of numbers of batches, such as [10, 50]", CHECKS)
        self._set("through", values.folder, "a list of run folders, such as ['runs/a', 'runs/b:0.3']", None)
        if len(self.through) > 3:
            raise ValueError(f"through={list(map(str, self.through))}: a plane goes through three networks")

    def _set(self, name: str, check: Callable[[str, Any], Any], expected: str, most: int | None) -> None:
        """Keep a setting that has several values as a tuple of them, each checked."""
        found = values.several(name, getattr(self, name), expected, most)
        object.__setattr__(self, name, tuple(check(name, each) for each in found))

    @property
    def wants_plane(self) -> bool:
        """Whether a plane is measured."""
        return self.plane or bool(self.through)

    def choose_on(self, bench: Bench) -> list[str]:
        """Return the split on which to choose, if there is one."""
        if self.split == "auto":
            return [split for split in bench.splits if split == "validation"]
        if self.split not in bench.splits:
            raise ValueError(
                f"split={self.split!r}: {bench.run.folder} held no images out; train with --validation, "
                "or choose on the test set, which is marked"
            )
        return [self.split]
