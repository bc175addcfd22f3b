"""`subspaces study instability`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, with_fields
from subspaces.cli.shared import (
    EXECUTION,
    RECIPE,
    Code,
    Data,
    DryRun,
    Json,
    Out,
    Quiet,
    Seeds,
    TensorBoard,
    To,
    given,
    mode,
)
from subspaces.cli.train import check_names
from subspaces.training import Execution, Recipe

if TYPE_CHECKING:
    from subspaces.studies.instability import InstabilityStudy

STUDY = "Study: what is shared, and how many branch"


@with_fields(Execution, EXECUTION)
@with_fields(Recipe, RECIPE, defaults=False, without=("trunk", "branch"))
def instability(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="The training that is branched; its result is one network.")
    ] = "cifar10-standard",
    shared: Annotated[
        list[int] | None,
        typer.Option(
            help="Numbers of epochs that are shared; by default none, and 1/32, 1/16, …, 3/4 of them.",
            metavar="INT...",
            show_default=False,
            rich_help_panel=STUDY,
        ),
    ] = None,
    models: Annotated[
        list[int] | None,
        typer.Option(
            help="Of how many networks averages, ensembles and mixtures are made.",
            metavar="INT...",
            show_default="2 5",
            rich_help_panel=STUDY,
        ),
    ] = None,
    draws: Annotated[int, typer.Option(help="Random mixtures of each kind.", rich_help_panel=STUDY)] = 5,
    seeds: Seeds = None,
    dry_run: DryRun = False,
    data: Data = ROOT,
    code: Code = None,
    out: Out = Path("runs"),
    to: To = Path("instability"),
    quiet: Quiet = False,
    as_json: Json = False,
    tensorboard: TensorBoard = True,
    **fields: Any,
) -> None:
    """Train networks that share their first epochs, and measure their averages, ensembles and random mixtures.

    The shared epochs are trained once, and kept in the hidden folder .trunks beside the runs. The same command again
    continues what was stopped.

    Example: subspaces study instability digits-standard --shared 0 4 15 30 45 --seeds 0 1 -o instability
    """
    from subspaces import studies
    from subspaces.studies import instability as parts
    from subspaces.studies.setting import Setting

    with usage("shared", "models", "draws", "to"):
        settings = given(fields, quiet, as_json, seeds)
        counts = tuple(models or (2, 5))
        plan = parts.planned(recipe, Setting(out, to), shared or None, counts, draws, seeds or None, settings)
        check_names([plan.recipe], data)
    if dry_run:
        printing.show_plan(plan.recipes(), out, as_json)
        return
    made = studies.study_instability(
        recipe,
        shared=plan.shared,
        models=counts,
        draws=draws,
        seeds=plan.seeds,
        data=data,
        out=out,
        to=to,
        show=mode(quiet, as_json),
        tensorboard=tensorboard,
        **settings,
    )
    if as_json:
        printing.show_json(to / "instability.json")
    else:
        _show(made)


def _show(made: "InstabilityStudy") -> None:
    from subspaces.studies import instability_tables as tables

    table = printing.table(*tables.COLUMNS, title=tables.heading(made), numbers=tables.COLUMNS)
    for line in tables.lines(made):
        table.add_row(*line)
    printing.closing(table, tables.notes(made), made.files, made.left_out)
