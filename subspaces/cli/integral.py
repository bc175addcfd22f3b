"""`subspaces study integral`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from subspaces.cli import printing
from subspaces.cli.compare import closing, show_plan
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, with_fields, without_rest
from subspaces.cli.train import EXECUTION, OUTPUT, RECIPE, check_names
from subspaces.training import Execution, Recipe

if TYPE_CHECKING:
    from subspaces.experiments.integral import IntegralStudy

STUDY = "Study: levels and seeds"


@without_rest
@with_fields(Execution, EXECUTION)
@with_fields(Recipe, RECIPE, defaults=False)
def integral(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE",
            help="The methods, one of them integral.",
            show_default="mnist-standard mnist-line mnist-integral",
        ),
    ] = None,
    levels: Annotated[
        list[float] | None,
        typer.Option(
            help="Fractions of training labels that are drawn at random.",
            metavar="FLOAT...",
            show_default="0 0.2 0.4 0.6",
            rich_help_panel=STUDY,
        ),
    ] = None,
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
        typer.Option("--to", "-o", help="The folder for tables and figure.", metavar="DIR", rich_help_panel=OUTPUT),
    ] = Path("integral"),
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="No progress bars, only the tables at the end.", rich_help_panel=OUTPUT),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Everything as one line of JSON instead.", rich_help_panel=OUTPUT)
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option(help="Log for TensorBoard too, where it is installed.", rich_help_panel=OUTPUT)
    ] = True,
    **fields: Any,
) -> None:
    """Compare Integral, whose ensemble of all networks of a line is one network, with others under label noise.

    The network at the end of its line is also compared with the numerical integral. All methods have the learning
    rate 0.02 unless --learning-rate says otherwise: LeNet does not bear more with a finite difference.
    The same command again continues what was stopped.

    Example: subspaces study integral --data data --seeds 0 1 2 -o integral
    """
    from subspaces import experiments
    from subspaces.experiments import integral as parts
    from subspaces.experiments.noise import LEVELS
    from subspaces.experiments.setting import Setting

    with usage():
        if quiet and as_json:
            raise ValueError("--quiet and --json exclude each other")
        if seeds and fields["seed"] is not None:
            raise ValueError("--seed and --seeds exclude each other")
        given = {"learning_rate": parts.RATE} | {name: value for name, value in fields.items() if value is not None}
        methods, shown = tuple(recipes or parts.RECIPES), tuple(levels or LEVELS)
        plan = parts.planned(methods, Setting(ensembles=()), shown, seeds or None, given)
        chosen = [one for level in plan.grid.values() for one in level]
        check_names(chosen, data)
    if dry_run:
        show_plan(chosen, out, as_json)
        return
    made = experiments.study_integral(
        methods,
        levels=shown,
        seeds=seeds or None,
        data=data,
        out=out,
        to=to,
        show="quiet" if quiet or as_json else "bar",
        tensorboard=tensorboard,
        **given,
    )
    if as_json:
        typer.echo(json.dumps(json.loads((to / "integral.json").read_bytes())))
    else:
        _show(made)


def _show(made: "IntegralStudy") -> None:
    from subspaces.experiments import integral_tables as tables

    first = printing.table(*tables.COLUMNS, title=tables.heading(made), numbers=tables.COLUMNS[3:])
    for line in made.study.lines:
        first.add_row(*map(escape, tables.cells(made, line)))
    printing.show(first)
    second = printing.table(*tables.CHECKED, title="the closed form in each line", numbers=tables.CHECKED[1:])
    for one in made.identities:
        second.add_row(*tables.checked(one))
    closing(second, tables.notes(made), made.files, made.left_out)
