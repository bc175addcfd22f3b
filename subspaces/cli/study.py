"""`subspaces study instability | integral | noise`."""

from typing import Annotated, Any

import typer

from subspaces.cli.options import Several, complete
from subspaces.cli.running import Ask, study_command
from subspaces.cli.shared import RECIPE as RECIPE_PANEL
from subspaces.cli.shared import DropoutPasses, Ensembles, Recipes, metric_names, option, recipe_names
from subspaces.evaluation.settings import PASSES

RATES = "0.05 0.1 0.2 0.4 0.8"
SHARED = "Study: what is shared, and how many branch"
CHOSEN = "Study: levels, and settings to choose from"
Numbers = list[float] | None
Levels = Annotated[
    Numbers, option("Fractions of training labels that are drawn at random.", "FLOAT...", RECIPE_PANEL, "0 0.2 0.4 0.6")
]


@study_command("instability", "shared", "models", "draws", without=("trunk", "branch"))
def instability(
    ask: Ask,
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="The training that is branched; its result is one network.",
            autocompletion=recipe_names,
        ),
    ] = "cifar10-standard",
    shared: Annotated[
        list[int] | None,
        option("How many epochs are shared: numbers; by default 0, and 1/32, 1/16, …, 3/4 of all.", "INT...", SHARED),
    ] = None,
    models: Annotated[
        list[int] | None,
        option("How many networks are averaged, put together and mixed: numbers.", "INT...", SHARED, "2 5"),
    ] = None,
    draws: Annotated[int, typer.Option(help="Random mixtures of each kind.", rich_help_panel=SHARED)] = 5,
) -> Any:
    """Train networks that share their first epochs, and measure their averages, ensembles and random mixtures.

    The shared epochs are trained once, and kept in the hidden folder .trunks beside the runs. The same command again
    continues what was stopped.

    Example: subspaces study instability digits-standard --shared 0 4 15 30 45 --seeds 0 1 -o instability
    """
    from subspaces.studies.instability import MODELS, plan, run

    return plan(recipe, ask(), shared or None, models or MODELS, draws), run


@study_command("integral", without=("label_noise",))
def integral(
    ask: Ask,
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE",
            help="The methods, one of them integral.",
            show_default="mnist-standard mnist-line mnist-integral",
            autocompletion=recipe_names,
        ),
    ] = None,
    levels: Levels = None,
) -> Any:
    """Compare Integral, whose ensemble of all networks of a line is one network, with others under label noise.

    The network at the end of its line is also compared with the numerical integral. All methods train with the
    learning rate 0.02 unless --learning-rate says otherwise: with 0.1 the training of Integral breaks down.
    The same command again continues what was stopped.

    Example: subspaces study integral --data data --seeds 0 1 2 -o integral
    """
    from subspaces.studies.integral import RECIPES, plan, run
    from subspaces.studies.noise_levels import LEVELS

    return plan(recipes or RECIPES, ask(), levels or LEVELS), run


@study_command("noise", "ensembles", "dropout_passes", "by", without=("label_noise",))
def noise(
    ask: Ask,
    recipes: Recipes,
    levels: Levels = None,
    dropout_rates: Annotated[
        Numbers,
        option("Rates of dropout to try on standard training; 0 leaves dropout out.", "FLOAT...", CHOSEN, RATES),
    ] = None,
    smoothing_rates: Annotated[
        Numbers,
        option("Rates of label smoothing to try on standard training; 0 leaves it out.", "FLOAT...", CHOSEN, RATES),
    ] = None,
    by: Annotated[
        str,
        option("The metric that chooses, on held-out images.", "NAME", CHOSEN, True, autocompletion=metric_names),
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
    from subspaces.studies.noise_levels import LEVELS, plan_levels

    lists = {"dropout": dropout_rates or study.RATES, "label_smoothing": smoothing_rates or study.RATES}
    asked = ask(ensembles=ensembles or None, dropout_passes=dropout_passes)
    try:
        plan = plan_levels(recipes, asked, levels or LEVELS, lists, by)
    except ValueError as error:
        hint = "; --dropout-rates 0 leaves dropout out of the study" if str(error).startswith("dropout=") else ""
        raise ValueError(f"{error}{hint}") from None
    return plan, study.run


def build() -> typer.Typer:
    """Return the commands of the studies, with an option for every field that there is."""
    app = typer.Typer(help="Studies: many runs, one table and one figure.", no_args_is_help=True)
    for command in (instability, integral, noise):
        app.command(cls=Several)(complete(command))
    return app
