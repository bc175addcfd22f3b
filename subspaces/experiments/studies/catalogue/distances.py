"""Exhibits of how far apart vertices are: while they are trained, and at the end in weights and in what they answer."""

from typing import Any

import torch

from subspaces.core.family import Subspace
from subspaces.core.shapes import Line
from subspaces.evaluation import curves
from subspaces.evaluation.classification import DISTANCES, Classes
from subspaces.evaluation.comparing import heading
from subspaces.evaluation.metrics import tally
from subspaces.evaluation.points import middle_of
from subspaces.evaluation.statistics import spread
from subspaces.evaluation.subject import spread as apart
from subspaces.experiments.evaluating.run_subject import RunSubject, run_subjects
from subspaces.experiments.evaluating.training import training_of
from subspaces.experiments.studies.catalogue.claims import BySeed, Claim
from subspaces.experiments.studies.catalogue.compared import (
    FIRST,
    LAST,
    STANDARD,
    Compared,
    Panel,
    Recipes,
    distances,
    number,
)
from subspaces.experiments.studies.catalogue.exhibit import Numbers
from subspaces.experiments.studies.catalogue.lines import label
from subspaces.experiments.studies.catalogue.scales import Bench
from subspaces.experiments.studies.noise import QUICK
from subspaces.experiments.studies.setting import Setting
from subspaces.experiments.studies.tables import Figure

CLOSE = 0.2
"""How far apart, relatively, distances are that make little difference."""
ORTHOGONAL = 0.05
"""A cos² of vertices that are nearly orthogonal."""


class Distances(Compared):
    """How far apart vertices are over the epochs."""

    picture = "training"

    def evaluation(self, bench: Bench) -> dict[str, Any]:
        return QUICK

    def numbers(self, found: Panel) -> Numbers:
        return distances(found)


class Dynamics(Distances):
    """How far apart the ends of lines are over the epochs."""

    name = "dynamics"
    where = "Figure 3"
    shows = "L2 distance and cos² between the ends of a line over the epochs"
    roles = ("small", "large")

    def recipes(self, bench: Bench) -> Recipes:
        return {label("line", beta=beta): bench.recipe("line", beta=beta) for beta in (0.0, 1.0)}

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        free = label("line", beta=0)
        return [
            Claim(
                "the ends of a line with β = 0 are less than a third as far apart as with β = 1",
                number("line", "l2"),
                number(free, "l2"),
                "l2",
                factor=3.0,
            ),
            Claim("with β = 1 the ends are nearly orthogonal at the end", ORTHOGONAL, number("line", "cos2"), "cos2"),
            Claim("with β = 0 the ends are not nearly orthogonal at the end", number(free, "cos2"), ORTHOGONAL, "cos2"),
            Claim(
                "with β = 1 the ends stay at least half as far apart as after the first epoch",
                number("line", "l2"),
                number("line", FIRST),
                "l2",
                factor=0.5,
            ),
        ]


class PointInit(Distances):
    """Whether it matters that the ends of a line begin at one point."""

    name = "point-init"
    where = "Figure 15"
    shows = "L2 distance and cos² between the ends of lines that start at one point"
    roles = ("small",)

    def recipes(self, bench: Bench) -> Recipes:
        return {
            label("line", beta=beta) + words: bench.recipe("line", beta=beta, init=init)
            for beta in (0.0, 1.0)
            for init, words in (("independent", ""), ("point", ", from one point"))
        }

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        claims = []
        for beta in (0.0, 1.0):
            plain, point = (number(label("line", beta=beta) + each, "l2") for each in ("", ", from one point"))
            words = f"with β = {beta:g}, ends that start at one point end at most {100 * CLOSE:g} %"
            claims += [
                Claim(f"{words} nearer than others", point, plain, "l2", factor=1 - CLOSE),
                Claim(f"{words} farther apart than others", plain, point, "l2", factor=1 / (1 + CLOSE)),
            ]
        return claims


class SimplexDynamics(Distances):
    """How far apart the vertices of simplexes are over the epochs."""

    name = "simplex-dynamics"
    where = "Figure 16"
    shows = "mean L2 distance and cos² between the vertices of simplexes over the epochs"
    roles = ("small",)

    def recipes(self, bench: Bench) -> Recipes:
        return {
            corners(m, beta): bench.recipe("simplex", vertices=m, beta=beta)
            for beta in (0.0, 1.0)
            for m in bench.scale.vertices
        }

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        fewest, most = bench.scale.vertices[0], bench.scale.vertices[-1]
        apart = [
            Claim(
                f"the vertices of a simplex of {m} are farther apart with β = 1 than with β = 0",
                number(corners(m, 1.0), "l2"),
                number(corners(m, 0.0), "l2"),
                "l2",
            )
            for m in bench.scale.vertices
        ]
        nearer = Claim(
            f"with β = 1 the vertices are nearer to each other with {most} of them than with {fewest}",
            number(corners(fewest, 1.0), "l2"),
            number(corners(most, 1.0), "l2"),
            "l2",
        )
        return [*apart, nearer]


def corners(m: int, beta: float) -> str:
    """Return what a simplex is called among others."""
    return label(f"simplex of {m}", beta=beta)


class Endpoints(Compared):
    """How differently the ends of lines answer, beside two independent networks."""

    name = "endpoints"
    where = "Figure 17"
    shows = "total variation, L2 distance and cos² between the ends of lines and between two networks"
    roles = ("small",)
    twins = True

    def recipes(self, bench: Bench) -> Recipes:
        lines = {label("line", beta=beta): bench.recipe("line", beta=beta) for beta in (0.0, 1.0)}
        return {STANDARD: bench.recipe(), **lines}

    def numbers(self, found: Panel) -> Numbers:
        return {
            **{one: _of_line(found, one) for one in found.recipes if one != STANDARD},
            "two networks": _of_networks(found, found.setting),
        }

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        line, free, networks = "line", label("line", beta=0), "two networks"
        return [
            Claim(
                "ends with β = 1 answer more differently than with β = 0", number(line, "tv"), number(free, "tv"), "tv"
            ),
            Claim("ends with β = 1 are farther apart than with β = 0", number(line, "l2"), number(free, "l2"), "l2"),
            Claim("ends with β = 1 are nearer to a right angle", number(free, "cos2"), number(line, "cos2"), "cos2"),
            Claim("two networks are nearly orthogonal", ORTHOGONAL, number(networks, "cos2"), "cos2"),
        ]

    def draw(self, found: Panel) -> Figure:
        from subspaces.experiments.studies import figures

        means = {
            one: {name: spread(list(values.values())) for name, values in each.items()}
            for one, each in found.numbers.items()
        }
        return figures.bars(heading([training_of(found.bench.base)]), means, ("tv", "l2", "cos2"))


def _of_line(found: Panel, one: str) -> dict[str, BySeed]:
    """Return how different the ends of lines are, from their records and results."""
    group = found.group(one)
    pairs = curves.along(group, "tv", average=None)
    tv = dict(zip(group.seeds, pairs.values[:, pairs.grid.tolist().index(0.0)].tolist(), strict=True))
    results = {seed: run.result for seed, run in found.runs(one).items()}
    return {"tv": tv, **{name: {seed: float(each[name]) for seed, each in results.items()} for name in LAST}}


def _of_networks(found: Panel, setting: Setting) -> dict[str, BySeed]:
    """Return how different the two networks of each seed are."""
    bench = run_subjects(setting.data, setting.measured_on.resolved())
    pairs = {seed: between(*map(bench, both)) for seed, both in found.pairs(STANDARD).items()}
    return {name: {seed: each[name] for seed, each in pairs.items()} for name in ("tv", "l2", "cos2")}


@torch.no_grad()
def between(first: RunSubject, second: RunSubject) -> dict[str, float]:
    """Return the total variation, the L2 distance and the cos² between the networks of two runs."""
    said = []
    for one in (first, second):
        outputs = one.predictor(["test"], None).whole(one.weights(middle_of(one.shape)))["test"]
        said.append(Classes(outputs.log_softmax(1)))
    networks = [one.family.midpoint() for one in (first, second)]
    l2, cos2 = apart(Subspace.from_modules(networks, Line())).tolist()
    return {"tv": tally(DISTANCES, [(said[0], said[1])])["tv"], "l2": l2, "cos2": cos2}
