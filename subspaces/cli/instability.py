"""`subspaces study instability`."""

from typing import Annotated, Any

import typer

from subspaces.cli import completion
from subspaces.cli.running import Asked, study_command
from subspaces.cli.shared import option

STUDY = "Study: what is shared, and how many branch"


@study_command("instability", "shared", "models", "draws", without=("trunk", "branch"))
def instability(
    asked: Asked,
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="The training that is branched; its result is one network.",
            autocompletion=completion.recipes,
        ),
    ] = "cifar10-standard",
    shared: Annotated[
        list[int] | None,
        option(
            "How many epochs are shared: numbers; by default 0, and 1/32, 1/16, …, 3/4 of all.",
            "INT...",
            STUDY,
        ),
    ] = None,
    models: Annotated[
        list[int] | None,
        option("How many networks are averaged, put together and mixed: numbers.", "INT...", STUDY, "2 5"),
    ] = None,
    draws: Annotated[int, typer.Option(help="Random mixtures of each kind.", rich_help_panel=STUDY)] = 5,
) -> Any:
    """Train networks that share their first epochs, and measure their averages, ensembles and random mixtures.

    The shared epochs are trained once, and kept in the hidden folder .trunks beside the runs. The same command again
    continues what was stopped.

    Example: subspaces study instability digits-standard --shared 0 4 15 30 45 --seeds 0 1 -o instability
    """
    from subspaces.studies.instability import MODELS, plan, run

    counts = models or MODELS
    return plan(recipe, asked.setting(), shared or None, counts, draws, asked.seeds, asked.changes), run
