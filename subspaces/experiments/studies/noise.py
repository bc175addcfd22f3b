"""The label-noise study: methods over levels of noise, with settings that are chosen on held-out images."""

from collections.abc import Mapping, Sequence
from typing import Any

from subspaces.core import files
from subspaces.experiments.studies.noise_levels import LEVELS, QUICK, NoiseStudy, Plan, measure_levels, plan_levels
from subspaces.experiments.studies.setting import Folder, OneRecipe, Setting, train_missing

RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
LISTS: dict[str, tuple[float, ...]] = {"dropout": RATES, "label_smoothing": RATES}


def study_noise(
    recipe: OneRecipe | Sequence[OneRecipe],
    *,
    levels: Sequence[float] = LEVELS,
    lists: Mapping[str, Sequence[float]] | None = None,
    by: str = "accuracy",
    out: Folder = "noise",
    **settings: Any,
) -> NoiseStudy:
    """Train and evaluate what is missing of methods at several levels of label noise, and write a table and a figure.

    Args:
        recipe: the methods: recipes or names of them, all on the same data.
        levels: the fractions of training labels that are drawn at random.
        lists: settings of standard training to try, by the name of the field; each list is a method of its own, of
            which the best value on held-out images is reported, and beside it, marked, the best on the test set.
        by: the metric that chooses.
        out: the folder for the table and the figure.
        settings: seeds, ensembles, dropout_passes, data, runs, show, tensorboard and changes, as in `compare`.

    Example:
        >>> study_noise(["digits-standard", "digits-line"], lists={}, levels=[0, 0.4], seeds=[0, 1])
    """
    return run(plan_levels(recipe, Setting.of(out=out, **settings), levels, LISTS if lists is None else lists, by))


def run(plan: Plan) -> NoiseStudy:
    """Train, measure and write what is missing."""
    with files.made(plan.setting.out):
        return measure_levels(plan, train_missing(plan.recipes, plan.setting, evaluation=QUICK)).write(plan.setting.out)
