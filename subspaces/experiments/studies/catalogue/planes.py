"""The exhibit of planes: the error around a curve, a simplex and a line."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from subspaces.evaluation.api import evaluate
from subspaces.evaluation.comparing import Group
from subspaces.evaluation.record import Plane, Record
from subspaces.experiments.studies.catalogue.claims import BySeed, Claim, Quantity
from subspaces.experiments.studies.catalogue.compared import STANDARD, Compared, Panel, Recipes, answer, ends
from subspaces.experiments.studies.catalogue.exhibit import Plan
from subspaces.experiments.studies.catalogue.scales import Bench
from subspaces.experiments.training.runs import Run


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


def planes(one: Record, cells: int) -> list[Plane]:
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
