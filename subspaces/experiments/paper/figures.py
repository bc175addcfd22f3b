"""The figures of the paper, as `figures.toml` has them: what is trained, how it is measured, drawn and claimed."""

import itertools
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import Any

from subspaces.errors import ArgumentError
from subspaces.evaluation.settings import Corruptions
from subspaces.experiments.paper.claims import Claim
from subspaces.experiments.paper.scales import Scale, Setup
from subspaces.experiments.studies.instability import MIXTURES, WORDS, shared_epochs
from subspaces.experiments.training.recipe import Recipe
from subspaces.text import Catalogue, nearest


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
FIGURES = Catalogue(
    "figure",
    [
        Figure(name, **entry)
        for name, entry in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
    ],
)
