"""`subspaces compare`."""

from typing import Annotated, Any

from subspaces.cli.running import Ask, study_command
from subspaces.cli.shared import COMPARISON, DropoutPasses, Ensembles, Recipes, option, recipe_names
from subspaces.evaluation.settings import PASSES


@study_command("comparison", "ensembles", "reference", "dropout_passes")
def compare(
    ask: Ask,
    recipes: Recipes,
    ensembles: Ensembles = None,
    reference: Annotated[
        str | None,
        option(
            "The recipe that all are compared with; by default the first standard one.",
            "RECIPE",
            COMPARISON,
            autocompletion=recipe_names,
        ),
    ] = None,
    dropout_passes: DropoutPasses = PASSES,
) -> Any:
    """Train and evaluate what is missing of several methods, and print and write one table of them all.

    Accuracy, NLL, ECE, Brier score and costs of every way in which a method answers, and differences that are
    paired by the seed. The same command again continues what was stopped; nothing is trained or measured twice.

    Example: subspaces compare digits-standard digits-line digits-simplex --seeds 0 1 2 -o comparison
    """
    from subspaces.studies.compare import plan, run

    return plan(recipes, ask(ensembles=ensembles or None, dropout_passes=dropout_passes), reference), run
