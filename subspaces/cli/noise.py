"""`subspaces study noise`."""

from typing import Annotated, Any

import typer

from subspaces.cli import completion
from subspaces.cli.running import Asked, study_command
from subspaces.cli.shared import DropoutPasses, Ensembles, Levels, Recipes, option
from subspaces.evaluation.settings import PASSES

STUDY = "Study: levels, and settings to choose from"
RATES = "0.05 0.1 0.2 0.4 0.8"


@study_command("noise", "ensembles", "dropout_passes", "by", without=("label_noise",))
def noise(
    asked: Asked,
    recipes: Recipes,
    levels: Levels = None,
    dropout_rates: Annotated[
        list[float] | None,
        option("Rates of dropout to try on standard training; 0 leaves dropout out.", "FLOAT...", STUDY, RATES),
    ] = None,
    smoothing_rates: Annotated[
        list[float] | None,
        option("Rates of label smoothing to try on standard training; 0 leaves it out.", "FLOAT...", STUDY, RATES),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="The metric that chooses, on held-out images.",
            metavar="NAME",
            rich_help_panel=STUDY,
            autocompletion=completion.metrics,
        ),
    ] = "accuracy",
    ensembles: Ensembles = None,
    dropout_passes: DropoutPasses = PASSES,
) -> Any:
    """Compare methods over levels of label noise: accuracy and calibration, one table and one figure.

    Dropout and label smoothing are tried at several rates; the best on held-out images (--validation) is reported,
    and beside it, marked, the best on the test set. The same command again continues what was stopped.

    Example: subspaces study noise cifar10-standard cifar10-simplex --validation 5000 --seeds 0 1 -o noise
    """
    from subspaces.studies import noise as study
    from subspaces.studies.levels import LEVELS, plan_levels

    lists = {"dropout": dropout_rates or study.RATES, "label_smoothing": smoothing_rates or study.RATES}
    setting = asked.setting(ensembles=ensembles or None, dropout_passes=dropout_passes)
    try:
        plan = plan_levels(recipes, setting, levels or LEVELS, lists, by, asked.seeds, asked.changes)
    except ValueError as error:
        hint = "; --dropout-rates 0 leaves dropout out of the study" if str(error).startswith("dropout=") else ""
        raise ValueError(f"{error}{hint}") from None
    return plan, study.run
