"""`subspaces study instability`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from subspaces.cli import printing
from subspaces.cli.compare import closing, show_plan, typed
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, with_fields, without_rest
from subspaces.cli.train import EXECUTION, OUTPUT, RECIPE, check_names
from subspaces.training import Execution, Recipe

if TYPE_CHECKING:
    from subspaces.experiments.instability import InstabilityStudy

STUDY = "Study: what is shared, and how many branch"


@without_rest
@with_fields(Execution, EXECUTION)
@with_fields(Recipe, RECIPE, defaults=False)
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
    seeds: Annotated[
        list[int] | None,
        typer.Option(
            help="Train each recipe once for each of these seeds: --seeds 0 1 2.",
            metavar="INT...",
            show_default=False,
            rich_help_panel=STUDY,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be trained.", rich_help_panel=STUDY)
    ] = False,
    data: Annotated[
        Path, typer.Option(help="The folder with the data sets.", metavar="DIR", rich_help_panel=EXECUTION)
    ] = ROOT,
    out: Annotated[
        Path, typer.Option("--out", help="The folder for the runs.", metavar="DIR", rich_help_panel=OUTPUT)
    ] = Path("runs"),
    to: Annotated[
        Path,
        typer.Option("--to", "-o", help="The folder for table and figure.", metavar="DIR", rich_help_panel=OUTPUT),
    ] = Path("instability"),
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="No progress bars, only the table at the end.", rich_help_panel=OUTPUT),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Everything as one line of JSON instead.", rich_help_panel=OUTPUT)
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option(help="Log for TensorBoard too, where it is installed.", rich_help_panel=OUTPUT)
    ] = True,
    **fields: Any,
) -> None:
    """Train networks that share their first epochs, and measure their averages, ensembles and random mixtures.

    The shared epochs are trained once. The same command again continues what was stopped.

    Example: subspaces study instability digits-standard --shared 0 4 15 30 45 --seeds 0 1 -o instability
    """
    from subspaces import experiments
    from subspaces.experiments import instability as parts
    from subspaces.experiments.setting import Setting

    with usage(), typed(("shared", "models", "draws")):
        if quiet and as_json:
            raise ValueError("--quiet and --json exclude each other")
        if seeds and fields["seed"] is not None:
            raise ValueError("--seed and --seeds exclude each other")
        given = {name: value for name, value in fields.items() if value is not None}
        counts = tuple(models or (2, 5))
        plan = parts.planned(recipe, Setting(), shared or None, counts, draws, seeds or None, given)
        check_names([plan.recipe], data)
    if dry_run:
        show_plan(plan.recipes(), out, as_json)
        return
    made = experiments.study_instability(
        recipe,
        shared=plan.shared,
        models=counts,
        draws=draws,
        seeds=plan.seeds,
        data=data,
        out=out,
        to=to,
        show="quiet" if quiet or as_json else "bar",
        tensorboard=tensorboard,
        **given,
    )
    if as_json:
        typer.echo(json.dumps(json.loads((to / "instability.json").read_bytes())))
    else:
        _show(made)


def _show(made: "InstabilityStudy") -> None:
    from subspaces.experiments import instability_tables as tables

    table = printing.table(*tables.COLUMNS, title=tables.heading(made), numbers=tables.COLUMNS)
    for line in tables.lines(made):
        table.add_row(*line)
    closing(table, tables.notes(made), made.files, made.left_out)
