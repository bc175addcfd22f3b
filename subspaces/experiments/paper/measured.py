"""What was measured for a figure, and what the expressions of its claims are: a number for each seed."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from subspaces.core.family import Subspace
from subspaces.core.shapes import Line
from subspaces.errors import ArgumentError
from subspaces.evaluation import comparing, curves
from subspaces.evaluation.classification import DISTANCES, Classes
from subspaces.evaluation.comparing import Group, heading
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import METRICS, tally
from subspaces.evaluation.points import middle_of
from subspaces.evaluation.rows import Plane
from subspaces.evaluation.statistics import spread
from subspaces.evaluation.subject import spread as apart
from subspaces.experiments.evaluating.run_subject import RunSubject, run_subjects
from subspaces.experiments.opening import training_of
from subspaces.experiments.paper.figures import Setup
from subspaces.experiments.studies.choices import GridStudy
from subspaces.experiments.studies.compare import is_second
from subspaces.experiments.studies.grid import methods_of
from subspaces.experiments.studies.instability import WORDS, InstabilityStudy
from subspaces.experiments.studies.setting import Setting, same
from subspaces.experiments.studies.tables import Drawing
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run
from subspaces.reports.figures import draw_groups
from subspaces.text import nearest

if TYPE_CHECKING:
    import pandas as pd

STANDARD, TWO = "standard", "two networks"
BySeed = dict[int, float]


@dataclass(frozen=True)
class Measured:
    """What was measured for a figure on one setup."""

    setup: Setup
    recipes: Mapping[str, Recipe]  # by what claims call them
    result: Any  # the comparison or study
    setting: Setting

    def value(self, expression: str, metric: str) -> BySeed:
        """Return what an expression is for each seed, in a metric.

        It is `LABEL: WHAT`, or LABEL for its midpoint. LABEL is what the figure calls a method. WHAT is an answer
        (midpoint, random, vertices, runs), points ("at 0.25, 0.75", whose mean it is) or two points together ("0.1 and
        0.9"), or a key of `TAKEN`. Of a study over a grid it is "at" values, and of
        that of instability LABEL is what is made of networks, and WHAT how many they are and share epochs ("2, 6").
        """
        label, _, what = expression.rpartition(": ") if ": " in expression else (expression, "", "midpoint")
        numbers = [float(each) for each in re.findall(r"-?[\d.]+", what)]
        if isinstance(self.result, InstabilityStudy):
            return self._mixed(label, *map(int, numbers))
        if isinstance(self.result, GridStudy):
            return self._over(label, numbers, metric)
        if what in TAKEN:
            return TAKEN[what](self, label)
        if not numbers:
            return self._answer(label, what, metric)
        points, average = (numbers, "") if what.startswith("at ") else (numbers[:1], None)
        by_seed = self.along(label, average)
        for each in by_seed.values():
            if not set(points) <= each.keys():
                raise ArgumentError(f"{expression!r}: expected points that were measured, {', '.join(map(str, each))}")
        return {seed: fmean(each[one] for one in points) for seed, each in by_seed.items()}

    def group(self, label: str) -> Group:
        """Return the evaluations of a method."""
        if label not in self.recipes:
            raise ArgumentError(f"no method {label!r} in this figure: {nearest(label, self.recipes)}")
        wanted = training_of(self.recipes[label]).group
        found: Group = next(each for each in self.result.groups if each.training and each.training.group == wanted)
        return found

    def runs(self, label: str) -> dict[int, Run]:
        """Return the runs of a method by the seed."""
        return {run.recipe.seed: run for run in self.result.runs if same(run.recipe, self.recipes[label])}

    def along(self, label: str, average: str | None = "") -> dict[int, dict[float, float]]:
        """Return each seed's accuracy by alpha, of the points of a line or curve ("") or of ensembles (None)."""
        group = self.group(label)
        curve = curves.along(group, "accuracy", average=average)
        every = (dict(zip(curve.grid.tolist(), values, strict=True)) for values in curve.values.tolist())
        return dict(zip(group.seeds, every, strict=True))

    def planes(self, one: Evaluation) -> list[Plane]:
        """Return the planes of the figure, by their number of cells: others are of the user's."""
        cells = self.setup.scale.cells
        return [plane for plane in one.planes if len(plane.xs) == len(plane.ys) == cells]

    @cached_property
    def two_networks(self) -> dict[str, BySeed]:
        """How differently the two standard networks of each seed answer, and how far apart they are."""
        subject = run_subjects(self.setting.data, self.setting.measured_on.resolved())
        pairs = [(one, two) for one in self.result.runs for two in self.result.second if is_second(two, one)]
        found = {one.recipe.seed: between(subject(one), subject(two)) for one, two in pairs}
        return {name: {seed: each[name] for seed, each in found.items()} for name in ("tv", "l2", "cos2")}

    def _answer(self, label: str, name: str, metric: str) -> BySeed:
        group = self.group(label)
        found = {each.kind: each for each in self.result.entries if each.method == group.label}
        kind = "network" if name == "midpoint" and group.single else name
        if kind not in found:
            raise ArgumentError(f"{label} has no answer {name!r}: {nearest(name, found)}")
        by_seed: BySeed = found[kind].by_seed(metric)
        return by_seed

    def _over(self, label: str, values: list[float], metric: str) -> BySeed:
        """Return a metric of a method as one network, in the mean over values of a grid."""
        method = methods_of([self.recipes[label]], {})[0].label if label in self.recipes else label
        own = [each for each in self.result.choices if each.method == method and each.chosen.networks == 1]
        if not set(values) <= {each.value for each in own}:
            raise ArgumentError(f"{label!r} at {values}: expected a method at {self.result.values}")
        every = [next(each.chosen for each in own if each.value == value).by_seed(metric) for value in values]
        return {seed: fmean(each[seed] for each in every) for seed in every[0] if all(seed in each for each in every)}

    def _mixed(self, words: str, models: int, shared: int) -> BySeed:
        """Return the accuracy of what is made of networks that share their first epochs, in the mean over draws."""
        (kind,) = (kind for kind, each in WORDS.items() if each == words)
        by_seed: BySeed = self.result.cells[models, shared, kind].groupby("seed")["accuracy"].mean().to_dict()
        return by_seed


# What is taken of evaluations


def along(found: Measured, label: str) -> BySeed:
    """Return the accuracy on average over the points of a line or curve."""
    return {seed: fmean(each.values()) for seed, each in found.along(label).items()}


def ends(found: Measured, label: str) -> BySeed:
    """Return the accuracy of a subspace's ends, or vertices, on average."""
    rows = comparing.answers(found.group(label), alone=True)
    rows = rows[rows["answer"] == comparing.ALONE]
    return {seeds[0]: float(value) for seeds, value in zip(rows["seeds"], rows["accuracy"], strict=True)}


def around(found: Measured, label: str, inside: bool) -> BySeed:
    """Return the mean accuracy over the cells of a simplex's plane that are inside its triangle, or outside."""
    group = found.group(label)
    several = zip(group.seeds, group.evaluations, strict=True)
    return {seed: mean_of_cells(found.planes(one)[0], inside) for seed, one in several}


def mean_of_cells(plane: Plane, inside: bool) -> float:
    """Return the mean accuracy over the cells inside the triangle of a plane's corners, or outside."""
    corners = np.array([[1.0, corner.x, corner.y] for corner in plane.corners]).T
    xs, ys = np.meshgrid(plane.xs, plane.ys)
    weights = np.linalg.solve(corners, np.stack([np.ones(xs.size), xs.ravel(), ys.ravel()]))  # [3, cells]
    values = np.nan_to_num(np.array(plane.values["accuracy"], float).ravel())
    return fmean(values[(weights > -1e-9).all(0) == inside].tolist())


def accuracies(found: Measured, label: str) -> "pd.DataFrame":
    """Return accuracies by seed and alpha, which is 1/2 of a single network: a column for each corruption, and `test`.

    Several severities of a corruption are averaged.
    """
    frame = found.group(label).frame
    points = frame[(frame["kind"] == "point") & frame["role"].isin(("along", "midpoint"))]
    points = points[(points["data"] == "test") | (points["severity"] > 0)]
    points = points.assign(seed=points["seeds"].str[0], alpha=points["alpha"].fillna(0.5))
    return points.groupby(["seed", "alpha", "data"])["accuracy"].mean().unstack("data")


def changes(found: Measured, label: str) -> "pd.DataFrame":
    """Return the relative changes (b − a)/a of the midpoint by seed, with a column for each corruption."""
    middle = accuracies(found, label).xs(0.5, level="alpha")
    clean = middle.pop("test")
    return middle.sub(clean, axis=0).div(clean, axis=0)


def best_change(found: Measured, label: str) -> BySeed:
    """Return the change at the point with the best one on each corruption, as the picture shows it."""
    group = found.group(label)
    best = curves.best_along(group, curves.conditions([group]), METRICS["accuracy"])
    return {seeds[0]: value for seeds, value in best.items()}


def winning(found: Measured, label: str) -> BySeed:
    """Return on which share of corruptions the midpoint loses less than standard training with the same seed."""
    ours, theirs = changes(found, label), changes(found, STANDARD)
    both = ours.index.intersection(theirs.index)
    won: BySeed = (ours.loc[both] > theirs.loc[both]).mean(axis=1).to_dict()
    return won


def differing(found: Measured, label: str, corrupted: bool) -> BySeed:
    """Return how far apart the best and the worst point of a line are, relative to their mean."""
    every = accuracies(found, label)
    runs = (every.drop(columns="test") if corrupted else every[["test"]]).groupby(level="seed")
    between: BySeed = ((runs.max() - runs.min()) / runs.mean()).mean(axis=1).to_dict()
    return between


def distance(found: Measured, label: str, name: str) -> BySeed:
    """Return how far apart the vertices of a subspace are, or two networks."""
    return found.two_networks[name] if label == TWO else {s: r.result[name] for s, r in found.runs(label).items()}


def total_variation(found: Measured, label: str) -> BySeed:
    """Return how differently the ends of a line answer, or two networks."""
    if label == TWO:
        return found.two_networks["tv"]
    group = found.group(label)
    pairs = curves.along(group, "tv", average=None)
    return dict(zip(group.seeds, pairs.values[:, pairs.grid.tolist().index(0.0)].tolist(), strict=True))


@torch.no_grad()
def between(first: RunSubject, second: RunSubject) -> dict[str, float]:
    """Return the total variation, the L2 distance and the cos² between the networks of two runs."""
    said = []
    for one in (first, second):
        outputs = one.predictor(["test"], None).whole(one.weights(middle_of(one.shape)))["test"]
        said.append(Classes(outputs.log_softmax(1)))
    l2, cos2 = apart(Subspace.from_modules([one.family.midpoint() for one in (first, second)], Line())).tolist()
    return {"tv": tally(DISTANCES, [(said[0], said[1])])["tv"], "l2": l2, "cos2": cos2}


TAKEN: dict[str, Callable[[Measured, str], BySeed]] = {
    "mean along it": along,
    "ends": ends,
    "cells inside": lambda found, label: around(found, label, True),
    "cells outside": lambda found, label: around(found, label, False),
    "change": lambda found, label: changes(found, label).mean(axis=1).to_dict(),
    "change at its best": best_change,
    "share of corruptions": winning,
    "range on corrupted images": lambda found, label: differing(found, label, True),
    "range on clean images": lambda found, label: differing(found, label, False),
    "l2": lambda found, label: distance(found, label, "l2"),
    "cos2": lambda found, label: distance(found, label, "cos2"),
    "l2 after the first epoch": lambda found, label: {s: r.log()[0]["l2"] for s, r in found.runs(label).items()},
    "tv": total_variation,
}


# Pictures that only figures of the paper have


def with_two_networks(found: Measured) -> Drawing:
    """Draw accuracy along lines and curves, and the level of two networks together."""
    from subspaces.experiments.studies import drawing

    level = found.value("standard: runs", "accuracy")
    return drawing.along_with(found.result.groups, "two networks together", list(level.values()))


def planes(found: Measured) -> Drawing:
    """Draw the planes of one seed, as a plane is of one run."""
    firsts = [(group, group.evaluations[0]) for group in map(found.group, ("curve", "simplex", "line"))]
    drawn = [Group(group.label, [replace(one, planes=found.planes(one))]) for group, one in firsts]
    return draw_groups("plane", drawn, "accuracy")


def endpoints(found: Measured) -> Drawing:
    """Draw how different the ends of lines are, and two networks."""
    from subspaces.experiments.studies import drawing

    labels, names = [*(each for each in found.recipes if each != STANDARD), TWO], ("tv", "l2", "cos2")
    values = {each: {name: found.value(f"{each}: {name}", name) for name in names} for each in labels}
    means = {each: {name: spread(list(some.values())) for name, some in own.items()} for each, own in values.items()}
    return drawing.bars(heading([training_of(found.setup.standard)]), means, names)


PICTURES: dict[str, Callable[[Measured], Drawing]] = {
    "with two networks": with_two_networks,
    "planes": planes,
    "endpoints": endpoints,
}
