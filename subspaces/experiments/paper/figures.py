"""The figures of the paper and the scales to reproduce them at: what is trained, measured, drawn and claimed."""

import importlib.util
import itertools
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Formatter
from typing import Any

from subspaces.errors import ArgumentError
from subspaces.evaluation.points import GRID
from subspaces.evaluation.settings import Corruptions
from subspaces.experiments.data import absent
from subspaces.experiments.methods import METHODS
from subspaces.experiments.paper.claims import Claim
from subspaces.experiments.studies.grid import LEVELS, LISTS
from subspaces.experiments.studies.instability import MIXTURES, WORDS, shared_epochs
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
    execution: Mapping[str, Any] = field(default_factory=dict)  # fields of `Execution`, unless told otherwise
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

    def obstacle(self, data: Path | None) -> str | None:
        """Return why nothing can be trained here, with what to do about it; None if it can."""
        library, reasons = self.standard.network.partition(":")[0], []
        if library in ("timm", "torchvision") and importlib.util.find_spec(library) is None:
            reasons.append(f"the network {self.standard.network!r} needs {library}: pip install 'subspaces[{library}]'")
        return " and ".join(filter(None, (*reasons, absent(self.standard.dataset, data)))) or None


def _entries(file: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name(file).read_text("utf-8"))


SCALES = Catalogue("scale", [Scale(name, **entry) for name, entry in _entries("scales.toml").items()])


@dataclass(frozen=True)
class Figure:
    """A figure of the paper.

    Names in braces stand for what `VALUES` has, once for each combination, or, in `evaluation`, for a field of the
    scale.

    Args:
        name: for the command line and the folder.
        where, shows: its number in the paper, and what it shows in a phrase without a verb.
        on: the paper's networks and data sets that it is about; a scale says what stands for them.
        recipes: what is trained, by what claims call it: a method, "layerwise" before it or not, and fields of recipes.
        claims: what the paper says of it: formulas by sentences, see `Claim`.
        picture: one of `PICTURES`, or a figure of the report; by default that of the table.
        evaluation: how runs are measured: arguments of `evaluate`, and points outside of the grid.
        study: how they are compared: "comparison", "noise", "epochs", "integral" or "instability".
        tried: in a study of label noise also try the scale's settings of standard training.
        second: train a second standard network for each seed, for ensembles of two.
        planes: also measure planes: of curves, simplexes, and through lines and standard training.
    """

    name: str
    where: str
    shows: str
    on: Sequence[str]
    recipes: Mapping[str, Mapping[str, Any]]
    claims: Mapping[str, str]
    picture: str = ""
    evaluation: Mapping[str, Any] = field(default_factory=lambda: {"grid": "{grid}"})
    study: str = "comparison"
    tried: bool = False
    second: bool = False
    planes: bool = False

    def recipes_on(self, setup: Setup) -> dict[str, Recipe]:
        """Return what is trained, by what claims call it."""
        found = {}
        for label, given in self.recipes.items():
            for names in _combinations(self.name, setup, label, *map(str, given.values())):
                fields = {name: names.get(str(each)[1:-1], each) for name, each in given.items()}
                *layerwise, method = fields.pop("method", "standard").split()
                fields |= {"layerwise": True} if layerwise else {}
                found[label.format(**names)] = setup.recipe(method, **fields)
        return found

    def claims_on(self, setup: Setup) -> Iterator[Claim]:
        """Yield what is claimed."""
        for sentence, formula in self.claims.items():
            for names in _combinations(self.name, setup, sentence, formula):
                yield Claim(sentence.format(**names), formula.format(**names))

    def evaluation_on(self, scale: Scale) -> dict[str, Any]:
        """Return how runs are measured, as arguments of `evaluate`."""
        found = {
            name: getattr(scale, each[1:-1]) if isinstance(each, str) and each.startswith("{") else each
            for name, each in self.evaluation.items()
        }
        if "severities" in found:
            found["corruptions"] = Corruptions(found["corruptions"], found.pop("severities"))
        found["grid"] = (*found.pop("outside", ()), *found["grid"])
        return {**found, "triangle": 0}


def _combinations(figure: str, setup: Setup, *texts: str) -> Iterator[dict[str, Any]]:
    """Yield what the names in texts stand for, in every combination."""
    names = list(dict.fromkeys(name for text in texts for _, name, _, _ in Formatter().parse(text) if name))
    for name in names:
        if name not in VALUES:
            raise ArgumentError(f"{{{name}}} in the figure {figure}: {nearest(name, VALUES)}")
    for values in itertools.product(*(VALUES[name](setup) for name in names)):
        yield dict(zip(names, values, strict=True))


def shared(setup: Setup) -> list[int]:
    """Return how many epochs branches share."""
    return sorted(shared_epochs(setup.standard, setup.scale.shared))


LINES = ("line", "layerwise line")
VALUES: dict[str, Callable[[Setup], Sequence[Any]]] = {
    "line": lambda _: LINES,
    "kind": lambda _: ("line", "curve"),
    "any": lambda _: (*LINES, "curve", "layerwise curve"),
    "shape": lambda _: ("simplex", "curve", "line"),
    "simplex": lambda _: ("simplex", "layerwise simplex"),
    "swa": lambda _: ("cyclic SWA", "constant SWA"),
    "alpha": lambda _: (0.25, 0.75),
    "more": lambda _: ("2 samples", "4 samples", "features apart"),
    "mixture": lambda _: [WORDS[kind] for kind in MIXTURES],
    "m": lambda setup: setup.scale.vertices,
    "fewest": lambda setup: setup.scale.vertices[:1],
    "most": lambda setup: setup.scale.vertices[-1:],
    "members": lambda setup: [setup.scale.members],
    "validation": lambda setup: [setup.scale.validation],
    "epochs": lambda setup: setup.scale.epochs,
    "shortest": lambda setup: setup.scale.epochs[:1],
    "longest": lambda setup: setup.scale.epochs[-1:],
    "clean": lambda setup: setup.scale.levels[:1],
    "noisy": lambda setup: [", ".join(map(str, setup.scale.levels[1:]))],
    "levels": lambda setup: [", ".join(map(str, setup.scale.levels))],
    "tried": lambda setup: [name.replace("_", " ") for name in setup.scale.lists],
    "models": lambda setup: setup.scale.models,
    "pair": lambda setup: setup.scale.models[:1],
    "all": lambda setup: [setup.standard.epochs],
    "few": lambda setup: [next(k for k in shared(setup) if k)],
    "half": lambda setup: [next(k for k in shared(setup) if 2 * k >= setup.standard.epochs)],
}
FIGURES = Catalogue("figure", [Figure(name, **entry) for name, entry in _entries("figures.toml").items()])
