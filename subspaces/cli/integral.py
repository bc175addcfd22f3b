"""`subspaces study integral`."""

from typing import Annotated, Any

import typer

from subspaces.cli import completion
from subspaces.cli.running import Asked, study_command
from subspaces.cli.shared import Levels


@study_command("integral", without=("label_noise",))
def integral(
    asked: Asked,
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE",
            help="The methods, one of them integral.",
            show_default="mnist-standard mnist-line mnist-integral",
            autocompletion=completion.recipes,
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
    from subspaces.studies.integral import RATE, RECIPES, plan, run
    from subspaces.studies.levels import LEVELS

    setting, changes = asked.setting(ensembles=()), {"learning_rate": RATE, **asked.changes}
    return plan(recipes or RECIPES, setting, levels or LEVELS, asked.seeds, changes), run
