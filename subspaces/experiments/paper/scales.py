"""The scales at which the paper is reproduced: which recipes stand for its networks, and how much is measured of them.

Figures name the paper's networks and data sets, so that a new scale is one entry here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from subspaces.errors import ArgumentError
from subspaces.evaluation.points import GRID
from subspaces.experiments.methods import METHODS
from subspaces.experiments.studies.grid import LEVELS, LISTS
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.recipes import RECIPES
from subspaces.text import Catalogue

CIFAR10, TINY18, TINY50 = "cifar10", "tiny-imagenet-resnet18", "tiny-imagenet-resnet50"
IMAGENET, WIDE, MNIST = "imagenet-resnet50", "imagenet-wide-resnet50", "mnist"
PAPER = (CIFAR10, TINY18, TINY50, IMAGENET, WIDE, MNIST)


@dataclass(frozen=True)
class Scale:
    """How large everything is."""

    name: str
    meaning: str
    standard: Mapping[str, Recipe]  # standard training of what stands for the paper's networks and data sets
    vertices: tuple[int, ...]  # of simplexes, and checkpoints of SWA
    members: int  # of ensembles that are no pair
    epochs: tuple[int, int, int]  # of trainings of growing length
    validation: int  # images on which settings are chosen under label noise, and early stopping its epoch
    integral_rate: float  # the learning rate of Integral and what it is compared with
    models: tuple[int, ...]  # of the instability analysis
    draws: int
    cells: int  # of a plane, in each direction
    severities: tuple[int, ...]  # of corruptions along a line
    corruptions: str | tuple[str, ...]  # of which there are bars
    shared: tuple[int, ...] | None = None  # epochs of the instability analysis; None: 0 and 1/32, 1/16, …, 3/4 of them
    levels: tuple[float, ...] = LEVELS  # of label noise
    lists: Mapping[str, Any] = field(default_factory=lambda: LISTS)  # of standard training tried under label noise
    seeds: tuple[int, ...] = (0, 1, 2)
    grid: tuple[float, ...] = GRID
    coarse: tuple[float, ...] = tuple(step / 10 for step in range(11))  # along a line on corrupted images

    def __post_init__(self) -> None:
        named: dict[str, Recipe] = {}
        for one in self.standard.values():
            if named.setdefault(one.name, one) != one:
                raise ArgumentError(
                    f"scale {self.name!r}: two recipes are called {one.name!r}; expected a name for each"
                )


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


_PAPER = Scale(
    "paper",
    "the paper's networks, data and epochs",
    # the narrow network of ImageNet is trained longer than its recipe
    standard={name: RECIPES[f"{name}-standard"] for name in PAPER}
    | {IMAGENET: replace(RECIPES[f"{IMAGENET}-standard"], epochs=200)},
    vertices=(2, 3, 4, 5, 6),
    members=6,
    epochs=(100, 200, 300),
    validation=5000,
    integral_rate=0.02,
    models=(2, 5),
    draws=5,
    cells=21,
    severities=(1, 3, 5),
    corruptions="all",
)
_SMOKE = Scale(
    "smoke",
    "a small network on scikit-learn's digits with 40 % random labels: minutes on a CPU, and not the paper's setting",
    standard=dict.fromkeys(PAPER, replace(RECIPES["digits-standard"], epochs=12)),
    vertices=(2, 4),
    members=4,
    epochs=(12, 18, 24),
    validation=200,
    integral_rate=0.1,
    models=(2, 3),
    draws=2,
    cells=5,
    severities=(1, 5),
    corruptions=("gaussian_noise", "snow", "contrast", "pixelate"),
    shared=(0, 6),
    levels=(0.0, 0.4),
    lists={"label_smoothing": (0.1, 0.4)},  # the network has no dropout
    grid=(0.0, 0.1, 0.25, 0.5),  # each with its opposite
    coarse=(0.0, 0.1, 0.5),
)
SCALES = Catalogue("scale", [_SMOKE, _PAPER])
