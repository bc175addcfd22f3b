"""Networks that share their first epochs: which runs they are, what was measured of them, and their table."""

import dataclasses
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from subspaces.evaluation.statistics import Spread, spread
from subspaces.studies import tables
from subspaces.studies.entries import Scores, names, shown
from subspaces.studies.mixing import KINDS, WORDS, Kind
from subspaces.studies.setting import Setting
from subspaces.studies.tables import Result, Sheet, Table
from subspaces.training.config import Recipe
from subspaces.training.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 1
COLUMNS = ("models", "shared epochs", *(f"{WORDS[kind]} %" for kind in KINDS))


@dataclass(frozen=True)
class Plan:
    """All that a study of instability is to do."""

    recipe: Recipe
    seeds: list[int]
    shared: list[int]
    models: list[int]
    draws: int
    setting: Setting

    def branches(self, seed: int, shared: int) -> list[Recipe]:
        """Return the branches of one trunk, as many as the largest number of models."""
        name = f"{self.recipe.name}-shared{shared}"
        numbers = range(1, max(self.models) + 1)
        return [replace(self.recipe, name=f"{name}-branch{b}", seed=seed, trunk=shared, branch=b) for b in numbers]

    @property
    def recipes(self) -> list[Recipe]:
        """All runs, those of short trunks first: a longer trunk goes on from there."""
        return [one for seed in self.seeds for shared in self.shared for one in self.branches(seed, shared)]


@dataclass(frozen=True)
class Cell:
    """What was measured of some models that share k epochs: one value for each branch, draw or seed."""

    models: int
    shared: int
    kind: Kind
    scores: list[Scores]

    def values(self, metric: str = "accuracy", split: str = "test") -> list[float]:
        """Return a metric of all of them."""
        return [score[split][metric] for score in self.scores]

    @property
    def key(self) -> dict[str, Any]:
        """Which cell it is, for files."""
        return {"models": self.models, "shared": self.shared, "kind": self.kind}


@dataclass(frozen=True)
class InstabilityStudy(Result):
    """All cells, by the number of models and the shared epochs."""

    plan: Plan
    cells: list[Cell]
    runs: list[Run]
    images: int

    def cell(self, models: int, shared: int, kind: Kind) -> Cell:
        """Return one of them."""
        return next(one for one in self.cells if (one.models, one.shared, one.kind) == (models, shared, kind))

    def accuracy(self, models: int, shared: int, kind: Kind) -> Spread:
        """Return the accuracy of one of them."""
        return spread(self.cell(models, shared, kind).values())

    def tabulate(self) -> Sheet:
        """Return everything that is to be written."""
        table, rows = Table(self.heading(), COLUMNS, self.lines()), [_row(cell) for cell in self.cells]
        return Sheet("instability", [table], self.notes(), self.summary(), {"instability": rows}, self.draw)

    def draw(self) -> "Figure":
        """Draw the accuracies over the number of shared epochs."""
        from subspaces.studies import instability_figure

        return instability_figure.panels(self.heading(), self.plan.models, self.plan.shared, self.accuracy)

    def summary(self) -> dict[str, Any]:
        """Return everything, for a JSON file; the same runs give the same."""
        plan = self.plan
        return {
            "schema": SCHEMA,
            "recipe": tables.without_seed(plan.recipe),
            "seeds": plan.seeds,
            "shared": plan.shared,
            "models": plan.models,
            "draws": plan.draws,
            "split": "test",
            "images": self.images,
            "notes": self.notes(),
            "environments": tables.environments(self.runs),
            "cells": [{**cell.key, "metrics": _metrics(cell)} for cell in self.cells],
            "runs": [tables.started(run) for run in self.runs],
        }

    def lines(self) -> list[list[str]]:
        """Return the rows of the table: accuracies."""
        return [
            [str(models), str(shared), *(shown(self.accuracy(models, shared, kind), "accuracy") for kind in KINDS)]
            for models in self.plan.models
            for shared in self.plan.shared
        ]

    def heading(self) -> str:
        """Return what all networks share."""
        recipe = self.plan.recipe
        return tables.heading([recipe], self.images, f"{recipe.epochs} epochs", recipe.label_noise)

    def notes(self) -> list[str]:
        """Return what a reader has to know to judge the numbers."""
        plan = self.plan
        return [
            "The networks share their first epochs and then see the images in another order; "
            f"{tables.named_seeds(plan.seeds)}. Accuracies: mean ± standard deviation (n − 1) over branches, draws and "
            "seeds.",
            f"Mixtures: {plan.draws} draws of coefficients that are uniform on the simplex, one for the network, for "
            "each layer, or for each weight.",
            "Batch-norm statistics are made anew for every network from all training images.",
        ]


def _metrics(cell: Cell) -> dict[str, dict[str, Any]]:
    return {metric: dataclasses.asdict(spread(cell.values(metric))) for metric in names()}


def _row(cell: Cell) -> dict[str, Any]:
    """Return the row of a cell in a CSV file."""
    numbers = {f"{metric}_{part}": each[part] for metric, each in _metrics(cell).items() for part in ("mean", "std")}
    return {**cell.key, "n": len(cell.scores), **numbers}
