"""The Integral study: a line whose ensemble of all networks is one network, under label noise, and whether it is."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from subspaces import files
from subspaces.methods import integral
from subspaces.studies import tables
from subspaces.studies.entries import titles
from subspaces.studies.identity import TOLERANCE, Identity, measure_identities
from subspaces.studies.levels import LEVELS, Plan, measure_levels, plan_levels
from subspaces.studies.lines import Study, columns
from subspaces.studies.measuring import train_missing
from subspaces.studies.setting import Folder, OneRecipe, Setting
from subspaces.studies.tables import Result, Sheet, Table
from subspaces.training.display import Mode

RECIPES = ("mnist-standard", "mnist-line", "mnist-integral")
RATE = 0.02
"""The learning rate of all methods: a difference over epsilon has a gradient about 1/epsilon as large as a network's,
and with the usual 0.1 the training of LeNet breaks down."""
SCHEMA = 1
CHECKED = ("noise %", "seed", "ε", "rounding", "accuracy % of g(1)", "of the mean of f", "disagree %", "TV")


@dataclass(frozen=True)
class IntegralStudy(Result):
    """Methods over levels of label noise, and the closed form of every Integral run."""

    study: Study
    identities: list[Identity]

    def tabulate(self) -> Sheet:
        """Return everything that is to be written."""
        study, told = self.study, f"Integral, {self.epsilons()}"
        heads = ("noise %", "method", "answer", *titles())  # nothing was chosen
        kept = [columns().index(head) for head in heads]
        rows = [[cells[index] for index in kept] for cells in map(study.cells, study.lines)]
        closed = Table("The closed form in each line", CHECKED, [one.cells() for one in self.identities], left=1)
        summary = {
            "schema": SCHEMA,
            "tolerance": TOLERANCE,
            "environments": tables.environments(study.runs),
            "identities": [{**dataclasses.asdict(one), "holds": one.holds} for one in self.identities],
            "study": study.summary(),
        }
        return Sheet(
            name="integral",
            tables=[Table(study.heading(told), heads, rows, left=3), closed],
            notes=self.notes(),
            summary=summary,
            rows={"integral": study.rows(), "identity": [dataclasses.asdict(one) for one in self.identities]},
            draw=study.draw,
        )

    def epsilons(self) -> str:
        """Return every ε that there is."""
        return f"ε = {', '.join(f'{value:g}' for value in sorted({one.epsilon for one in self.identities}))}"

    def notes(self) -> list[str]:
        """Return what a reader has to know to judge the numbers."""
        held, images = sum(one.holds for one in self.identities), max(one.images for one in self.identities)
        recipe = self.study.comparisons[0].recipe
        return [
            *self.study.notes(),
            f"All methods: {recipe.epochs} epochs, learning rate {recipe.learning_rate:g}, batches of {recipe.batch}; "
            "a step of integral is three network-steps, of the others one.",
            f"The closed form, {self.epsilons()}: the sum of ε f over the 1/ε steps of ε telescopes to g(1) for any "
            "network g, trained or not, so it checks the computation and not the training. It is g(1) within "
            f"{TOLERANCE:g} of the largest output in {held} of {len(self.identities)} runs (rounding in float32).",
            "What tells about a trained line is the mean of f over all of [0, 1] (midpoint rule, 2/ε nodes), which "
            "differs from g(1) by ε/2 (g'(1) − g'(0)) + O(ε²): its accuracy, how often it disagrees with g(1), and the "
            f"total variation (TV) between the two, on the first {images:,} test images.",
        ]


def study_integral(
    recipe: OneRecipe | Sequence[OneRecipe] = RECIPES,
    *,
    levels: Sequence[float] = LEVELS,
    seeds: Sequence[int] | None = None,
    learning_rate: float = RATE,
    data: Folder | None = None,
    runs: Folder = "runs",
    out: Folder = "integral",
    show: Mode = "bar",
    tensorboard: bool = True,
    **changes: Any,
) -> IntegralStudy:
    """Train and evaluate what is missing of Integral and what it is compared with; write a table and a figure.

    Args:
        recipe: the methods, one of them integral.
        levels: the fractions of training labels that are drawn at random.
        learning_rate: of all methods.
        seeds, data, runs, out, show, tensorboard, changes: as in `compare`.

    Example:
        >>> ss.studies.study_integral(levels=[0, 0.4], seeds=[0, 1], data="data")
    """
    setting = Setting.of(runs, out, data, ensembles=(), show=show, tensorboard=tensorboard)
    return run(plan(recipe, setting, levels, seeds, {"learning_rate": learning_rate, **changes}))


def plan(
    recipe: OneRecipe | Sequence[OneRecipe],
    setting: Setting,
    levels: Sequence[float],
    seeds: Sequence[int] | None,
    changes: dict[str, Any],
) -> Plan:
    """Check everything and return what is to be done; nothing is."""
    found = plan_levels(recipe, setting, levels, {}, "accuracy", seeds, changes)
    lines = [one for one in found.recipes if one.method == "integral"]
    if not lines:
        raise ValueError("no recipe has the method integral: expected one, such as mnist-integral")
    for one in lines:
        integral.steps(one.epsilon)
    return found


def run(plan: Plan) -> IntegralStudy:
    """Train, measure and write what is missing."""
    with files.made(plan.setting.out):
        runs = train_missing(plan.recipes, plan.setting)
        found = measure_levels(plan, runs)
        identities = measure_identities([run for run in runs if run.recipe.method == "integral"], plan.setting)
        return IntegralStudy(found, identities).write(plan.setting.out)
