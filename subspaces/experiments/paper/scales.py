"""The scales at which the paper is reproduced: which recipes stand for its networks, and how much is measured of them.

Figures name the paper's networks and data sets, so that a new scale is one entry of `scales.toml`.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from subspaces.errors import ArgumentError
from subspaces.evaluation.points import GRID
from subspaces.experiments.methods import METHODS
from subspaces.experiments.studies.grid import LEVELS, LISTS
from subspaces.experiments.training.recipe import RECIPES, Recipe
from subspaces.text import Catalogue, nearest


@dataclass(frozen=True)
class Scale:
    """How large everything is."""

    name: str
    meaning: str
    standard: Mapping[str, Mapping[str, Any]]  # by the paper's network and data set: a recipe, and changes to it
    vertices: Sequence[int]  # of simplexes, and checkpoints of SWA
    members: int  # of ensembles that are no pair
    epochs: Sequence[int]  # of trainings of growing length
    validation: int  # images on which settings are chosen under label noise, and early stopping its epoch
    integral_rate: float  # the learning rate of Integral and what it is compared with
    models: Sequence[int]  # of the instability analysis
    draws: int
    cells: int  # of a plane, in each direction
    severities: Sequence[int]  # of corruptions along a line
    corruptions: str | Sequence[str]  # of which there are bars
    shared: Sequence[int] | None = None  # epochs of the instability analysis; None: 0 and 1/32, 1/16, …, 3/4 of them
    levels: Sequence[float] = LEVELS  # of label noise
    lists: Mapping[str, Sequence[float]] = field(default_factory=lambda: LISTS)  # tried on standard training under it
    seeds: Sequence[int] = (0, 1, 2)
    grid: Sequence[float] = GRID
    coarse: Sequence[float] = tuple(step / 10 for step in range(11))  # along a line on corrupted images

    def setup(self, name: str) -> "Setup":
        """Return what stands for a network and a data set of the paper."""
        if (found := dict(self.standard.get(name, self.standard.get("any", {})))) == {}:
            raise ArgumentError(
                f"no network and data set {name!r} at the scale {self.name}: {nearest(name, self.standard)}"
            )
        return Setup(replace(RECIPES.find(found.pop("recipe")), **found), self)


@dataclass(frozen=True)
class Setup:
    """A network and a data set at one scale, trained in any way."""

    standard: Recipe
    scale: Scale = field(repr=False)

    @property
    def name(self) -> str:
        """What it is called, also as a folder."""
        return self.standard.name.removesuffix("-standard")

    def recipe(self, method: str = "standard", **changes: Any) -> Recipe:
        """Return the recipe of a method here.

        It is called as the recipe that it is, if there is one, so that runs which are there already are found.
        """
        made = replace(self.standard, method=method, **changes)
        alike = (one for one in RECIPES.values() if (one.method, one.dataset) == (method, made.dataset))
        known = (one.name for one in alike if one.key == made.key)
        before = self.standard.to_dict() | METHODS[method]().own()
        told = {name: value for name, value in made.to_dict().items() if name in changes and value != before[name]}
        words = (f"-{name.replace('_', '-')}{'' if value is True else value}" for name, value in told.items())
        return replace(made, name=next(known, f"{self.name}-{method}{''.join(words)}"))


_ENTRIES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
SCALES = Catalogue("scale", [Scale(name, **entry) for name, entry in _ENTRIES.items()])
