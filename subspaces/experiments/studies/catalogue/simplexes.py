"""Exhibits of planes and simplexes: the error around them, their midpoint, and ensembles of several networks."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from subspaces.evaluation.comparing import Group
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.rows import Plane
from subspaces.experiments.evaluating.evaluate import evaluate
from subspaces.experiments.studies.catalogue.claims import BySeed, Claim, Quantity
from subspaces.experiments.studies.catalogue.compared import STANDARD, Compared, Panel, Recipes, answer, ends, together
from subspaces.experiments.studies.catalogue.exhibit import Plan
from subspaces.experiments.studies.catalogue.lines import EDGE, MATCH, PICTURES
from subspaces.experiments.studies.catalogue.scales import Bench
from subspaces.experiments.studies.tables import Figure
from subspaces.experiments.training.runs import Run

SWA = {"swa-cyclic": "cyclic SWA", "swa-constant": "constant SWA"}


class Planes(Compared):
    """The error around a curve, a simplex and a line."""

    name = "planes"
    where = "Figure 2"
    shows = "test error on planes through a curve, a simplex and a line"
    roles = ("small",)
    picture = "plane"
    metric = "accuracy"

    def recipes(self, bench: Bench) -> Recipes:
        return {STANDARD: bench.recipe(), **{name: bench.recipe(name) for name in ("line", "curve", "simplex")}}

    def measure_more(self, plan: Plan, runs: Sequence[Run]) -> None:
        """Measure the plane of each curve and simplex, and that through each line and standard training."""
        about = {**self.evaluation(plan.bench), "cells": plan.bench.scale.cells, **plan.setting.measuring()}
        by_seed = {run.recipe.seed: run.folder for run in runs if run.recipe.method == STANDARD}
        evaluate([run for run in runs if run.recipe.method in ("curve", "simplex")], plane=True, **about)
        for run in runs:
            if run.recipe.method == "line":
                evaluate(run, through=[by_seed[run.recipe.seed]], **about)

    def networks(self, plan: Plan) -> float:
        return 3.0 * len({one.seed for one in plan.study.recipes}) * plan.bench.scale.cells**2

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        inside, outside = around("simplex", True), around("simplex", False)
        return [
            Claim("on its plane, networks of the simplex are more accurate than those outside", inside, outside),
            *(
                Claim(f"the midpoint of the {one} is above its ends", answer(one), ends(one))
                for one in ("simplex", "curve", "line")
            ),
        ]

    def drawn(self, found: Panel) -> list[Group]:
        """Return the evaluations of one seed, as a plane is of one run."""
        firsts = [(group, group.evaluations[0]) for group in map(found.group, ("curve", "simplex", "line"))]
        cells = found.bench.scale.cells
        return [Group(group.label, [replace(one, planes=planes(one, cells))]) for group, one in firsts]


def planes(one: Evaluation, cells: int) -> list[Plane]:
    """Return the planes with so many cells in each direction: others are not of this exhibit."""
    return [plane for plane in one.planes if len(plane.xs) == len(plane.ys) == cells]


def around(method: str, inside: bool) -> Quantity[Panel]:
    """Return the mean accuracy over the cells of a simplex's plane that are inside its triangle, or outside."""

    def of(found: Panel) -> BySeed:
        cells, group = found.bench.scale.cells, found.group(method)
        several = zip(group.seeds, group.evaluations, strict=True)
        return {seed: _mean_of_cells(planes(one, cells)[0], inside) for seed, one in several}

    return Quantity(f"{method}: cells {'inside' if inside else 'outside'}", of)


def _mean_of_cells(plane: Plane, inside: bool) -> float:
    corners = np.array([[1.0, corner.x, corner.y] for corner in plane.corners]).T
    cells = [
        (x, y, row[i])
        for y, row in zip(plane.ys, plane.values["accuracy"], strict=True)
        for i, x in enumerate(plane.xs)
    ]
    within = [bool((np.linalg.solve(corners, [1.0, x, y]) > -1e-9).all()) for x, y, _ in cells]
    return fmean(float(value or 0.0) for (_, _, value), is_in in zip(cells, within, strict=True) if is_in == inside)


class SimplexMidpoint(Compared):
    """How accurate the midpoint of a simplex is against the number of vertices, beside SWA."""

    name = "simplex-midpoint"
    where = "Figure 7"
    shows = "accuracy of the midpoint of a simplex against the number of vertices, with SWA at as many checkpoints"
    roles = PICTURES
    picture = "vertices"

    def recipes(self, bench: Bench) -> Recipes:
        found = {STANDARD: bench.recipe()}
        for m in bench.scale.vertices:
            found[f"simplex of {m}"] = bench.recipe("simplex", vertices=m)
            found[f"layerwise simplex of {m}"] = bench.recipe("simplex", vertices=m, layerwise=True)
            for method, words in SWA.items():
                found[f"{words} of {m}"] = bench.recipe(method, vertices=m)
        return found

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        above = [
            Claim(f"the midpoint of the {one} is above standard training", answer(one), answer(STANDARD))
            for m in bench.scale.vertices
            for one in (f"simplex of {m}", f"layerwise simplex of {m}")
        ]
        matches = [
            Claim(
                f"the midpoint of the {one} matches {swa} of {m} within {100 * MATCH:g} points",
                answer(one),
                answer(f"{swa} of {m}"),
                margin=MATCH,
            )
            for m in bench.scale.vertices
            for one in (f"layerwise simplex of {m}",)
            for swa in SWA.values()
        ]
        return [*above, *matches]


class SixModels(Compared):
    """How accurate several networks are together that one training gives."""

    name = "six-models"
    where = "Figure 11"
    shows = "ensembles of six networks of one training: of a simplex, snapshots, checkpoints of SWA, SWA-Gaussian"
    roles = PICTURES

    def recipes(self, bench: Bench) -> Recipes:
        m = bench.scale.members
        return {
            STANDARD: bench.recipe(),
            "line": bench.recipe("line"),
            "simplex": bench.recipe("simplex", vertices=m),
            "snapshot": bench.recipe("snapshot", vertices=m),
            "swa": bench.recipe("swa-cyclic", vertices=m),
            "swag": bench.recipe("swag", vertices=m),
        }

    def evaluation(self, bench: Bench) -> dict[str, object]:
        return {**super().evaluation(bench), "random": bench.scale.members}

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        m = bench.scale.members
        others = {
            f"{m} random points of the simplex": answer("simplex", "random"),
            f"{m} snapshots": answer("snapshot", "vertices"),
            f"{m} checkpoints of SWA": answer("swa", "vertices"),
            f"{m} networks of SWA-Gaussian": answer("swag", "vertices"),
        }
        pair = together("line", EDGE)
        return [Claim(f"two points of the line are above {words}", pair, other) for words, other in others.items()]

    def draw(self, found: Panel) -> Figure:
        return found.comparison.draw()
