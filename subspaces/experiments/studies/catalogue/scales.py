"""The scales at which the paper is reproduced: which recipes stand for its networks, and how much is measured of them.

What the paper shows names roles and no data set, so that a new scale is one entry here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from subspaces.errors import ArgumentError
from subspaces.evaluation.points import GRID
from subspaces.experiments.methods import METHODS
from subspaces.experiments.studies.noise import LEVELS, RATES
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.recipes import RECIPES
from subspaces.text import Catalogue

Role = Literal["small", "medium", "medium-deep", "large", "large-wide", "grey"]
"""What a network and its data are in the paper: CIFAR-10, TinyImageNet twice, ImageNet twice, MNIST."""
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Scale:
    """How large everything is."""

    name: str
    meaning: str
    bases: Mapping[Role, Recipe]  # standard training
    seeds: tuple[int, ...]
    vertices: tuple[int, ...]  # of simplexes, and checkpoints of SWA
    members: int  # of ensembles that are no pair
    epochs: tuple[int, int, int]  # of trainings of growing length
    levels: tuple[float, ...]  # of label noise
    lists: Mapping[str, tuple[float, ...]]  # settings of standard training that are tried under label noise
    validation: int  # images on which these are chosen, and early stopping its epoch
    integral_rate: float  # the learning rate of Integral and what it is compared with
    shared: tuple[int, ...] | None  # epochs of the instability analysis; None: 0 and 1/32, 1/16, …, 3/4 of them
    models: tuple[int, ...]
    draws: int
    cells: int  # of a plane, in each direction
    severities: tuple[int, ...]  # of corruptions along a line
    corruptions: str | tuple[str, ...]  # of which there are bars
    grid: tuple[float, ...] = GRID
    coarse: tuple[float, ...] = tuple(step / 10 for step in range(11))  # along a line on corrupted images

    def __post_init__(self) -> None:
        named: dict[str, Recipe] = {}
        for one in self.bases.values():
            if named.setdefault(one.name, one) != one:
                raise ArgumentError(f"scale {self.name!r}: two bases are called {one.name!r}; expected a name for each")

    def bench(self, role: Role) -> "Bench":
        """Return the network and data that play a role."""
        return Bench(self.bases[role], self)


@dataclass(frozen=True)
class Bench:
    """A network and a data set, trained in any way; a role of the paper at one scale."""

    base: Recipe  # standard training
    scale: Scale = field(repr=False)

    @property
    def name(self) -> str:
        """What it is called, also as a folder."""
        return self.base.name.removesuffix("-standard")

    def recipe(self, method: str = "standard", **changes: Any) -> Recipe:
        """Return the recipe of a method here.

        It is called as the recipe that it is, if there is one, so that runs which are there already are found.
        """
        made = replace(self.base, method=method, **changes)
        alike = (one for one in RECIPES.values() if (one.method, one.dataset) == (method, made.dataset))
        known = (one.name for one in alike if one.key == made.key)
        before = self.base.to_dict() | METHODS[method]().own()
        told = {name: value for name, value in made.to_dict().items() if name in changes and value != before[name]}
        words = (f"-{name.replace('_', '-')}{'' if value is True else value}" for name, value in told.items())
        return replace(made, name=next(known, f"{self.name}-{method}{''.join(words)}"))


_PAPER = Scale(
    "paper",
    "the paper's networks, data and epochs",
    bases={
        "small": RECIPES["cifar10-standard"],
        "medium": RECIPES["tiny-imagenet-resnet18-standard"],
        "medium-deep": RECIPES["tiny-imagenet-resnet50-standard"],
        "large": replace(RECIPES["imagenet-resnet50-standard"], epochs=200),  # the smaller one is trained longer
        "large-wide": RECIPES["imagenet-wide-resnet50-standard"],
        "grey": RECIPES["mnist-standard"],
    },
    seeds=(0, 1, 2),
    vertices=(2, 3, 4, 5, 6),
    members=6,
    epochs=(100, 200, 300),
    levels=LEVELS,
    lists={"dropout": RATES, "label_smoothing": RATES},
    validation=5000,
    integral_rate=0.02,
    shared=None,
    models=(2, 5),
    draws=5,
    cells=21,
    severities=(1, 3, 5),
    corruptions="all",
)
_DIGITS = replace(RECIPES["digits-standard"], epochs=12)
_SMOKE = Scale(
    "smoke",
    "a small network on scikit-learn's digits with 40 % random labels: minutes on a CPU, and not the paper's setting",
    bases=dict.fromkeys(ROLES, _DIGITS),
    seeds=(0, 1, 2),
    vertices=(2, 4),
    members=4,
    epochs=(12, 18, 24),
    levels=(0.0, 0.4),
    lists={"label_smoothing": (0.1, 0.4)},  # the network has no dropout
    validation=200,
    integral_rate=0.1,
    shared=(0, 6),
    models=(2, 3),
    draws=2,
    cells=5,
    severities=(1, 5),
    corruptions=("gaussian_noise", "snow", "contrast", "pixelate"),
    grid=(0.0, 0.1, 0.25, 0.5),  # each with its opposite
    coarse=(0.0, 0.1, 0.5),
)
SCALES = Catalogue("scale", [_SMOKE, _PAPER])
