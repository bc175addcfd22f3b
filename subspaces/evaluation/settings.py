"""What an evaluation measures, checked before anything is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from subspaces.evaluation.bench import Bench
from subspaces.evaluation.points import GRID
from subspaces.evaluation.through import Name
from subspaces.points import nearest
from subspaces.training.config import Precision

ChooseOn = Literal["auto", "validation", "test"]


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
            raise ValueError(f"split={self.split!r}: {nearest(str(self.split), get_args(ChooseOn))}")
        if not all(math.isfinite(alpha) for alpha in self.grid):
            raise ValueError(f"grid={list(self.grid)}: expected finite numbers")
        counts = {"statistics_batches": 1, "plane_statistics_batches": 1, "cells": 2, "random": 0, "triangle": 0}
        for name, least in counts.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise ValueError(f"{name}={value}: expected at least {least}")
        if not all(count >= 1 for count in self.check_statistics):
            raise ValueError(f"check_statistics={list(self.check_statistics)}: expected at least 1 batch each")
        if len(self.through) > 3:
            raise ValueError(f"through={list(self.through)}: a plane goes through three networks")

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
