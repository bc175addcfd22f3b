"""Methods compared on equal terms: the call behind `subspaces compare`."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from subspaces.core import files
from subspaces.evaluation.settings import PASSES
from subspaces.experiments.studies.comparison import Comparison, measure
from subspaces.experiments.studies.setting import (
    Folder,
    OneRecipe,
    Setting,
    check,
    find_reference,
    resolve,
    train_missing,
)
from subspaces.experiments.studies.tables import attempt
from subspaces.experiments.training.display import Mode
from subspaces.experiments.training.recipe import Recipe
from subspaces.reports.page import write_page


@dataclass(frozen=True)
class Plan:
    """All that a comparison is to do."""

    recipes: list[Recipe]
    reference: Recipe | None
    setting: Setting


def compare(
    recipe: OneRecipe | Sequence[OneRecipe],
    *,
    seeds: Sequence[int] | None = None,
    ensembles: Sequence[int] | None = None,
    reference: OneRecipe | None = None,
    dropout_passes: int = PASSES,
    data: Folder | None = None,
    runs: Folder = "runs",
    out: Folder = "comparison",
    show: Mode = "bar",
    tensorboard: bool = True,
    **changes: Any,
) -> Comparison:
    """Train and evaluate what is missing of several methods, and write one table of them all.

    Everything is decided by the recipes and seeds: nothing is trained or measured twice, and what was interrupted
    continues. Beside the table (comparison.json, .csv, .md) there are a figure and the report page.

    Args:
        recipe: the methods: recipes or names of them, all on the same data.
        seeds: train each recipe once for each of these instead of its own seed.
        ensembles: also measure ensembles of so many independent standard runs; by default of two, where there are two.
        reference: the recipe that others are compared with; by default the first standard one.
        dropout_passes: how often a network with dropout is asked for MC-dropout.
        data: the folder with the data sets; by default `data`.
        runs: the folder of the run folders, those that are there and those that are trained.
        out: the folder for the table, the figure and the page.
        show: "bar" for progress bars, "json" for a line per epoch on standard output, "quiet".
        tensorboard: also write the log for TensorBoard, where that is installed.
        changes: any field of `Recipe` or `Execution` to set for all of them.

    Example:
        >>> comparison = ss.compare(["digits-standard", "digits-line"], seeds=[0, 1], epochs=20)
        >>> {entry.named: entry.values("accuracy") for entry in comparison.entries}
    """
    where: dict[str, Any] = {"data": data, "runs": runs, "out": out, "show": show, "tensorboard": tensorboard}
    setting = Setting.of(seeds=seeds, ensembles=ensembles, dropout_passes=dropout_passes, **where, **changes)
    return run(plan(recipe, setting, reference))


def plan(recipe: OneRecipe | Sequence[OneRecipe], setting: Setting, reference: OneRecipe | None) -> Plan:
    """Check everything and return what is to be done; nothing is."""
    recipes, resolved = resolve(recipe, setting)
    chosen = find_reference(recipes, reference)
    check(recipes, resolved)
    return Plan(recipes, chosen, resolved)


def run(plan: Plan) -> Comparison:
    """Train, measure and write what is missing."""
    out = plan.setting.out
    with files.made(out):
        runs = train_missing(plan.recipes, plan.setting, evaluation={})
        made = measure(runs, plan.setting, plan.reference, scaled=True).write(out)
        page, reason = attempt("page", lambda: [write_page(made.groups, out / "report.html", made.together)])
        return dataclasses.replace(made, files=made.files + page, left_out=made.left_out + reason)
