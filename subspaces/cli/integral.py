"""`subspaces study integral`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

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
    Levels,
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
    from subspaces.studies.integral import IntegralStudy


@with_fields(Execution, EXECUTION)
@with_fields(Recipe, RECIPE, defaults=False, without=("label_noise",))
def integral(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE",
            help="The methods, one of them integral.",
            show_default="mnist-standard mnist-line mnist-integral",
        ),
    ] = None,
    levels: Levels = None,
    seeds: Seeds = None,
    dry_run: DryRun = False,
    data: Data = ROOT,
    code: Code = None,
    out: Out = Path("runs"),
    to: To = Path("integral"),
    quiet: Quiet = False,
    as_json: Json = False,
    tensorboard: TensorBoard = True,
    **fields: Any,
) -> None:
    """Compare Integral, whose ensemble of all networks of a line is one network, with others under label noise.

    The network at the end of its line is also compared with the numerical integral. All methods have the learning
    rate 0.02 unless --learning-rate says otherwise: LeNet does not bear more with a finite difference.
    The same command again continues what was stopped.

    Example: subspaces study integral --data data --seeds 0 1 2 -o integral
    """
    from subspaces import studies
    from subspaces.studies import integral as parts
    from subspaces.studies.noise import LEVELS
    from subspaces.studies.setting import Setting

    with usage("to"):
        settings = {"learning_rate": parts.RATE} | given(fields, quiet, as_json, seeds)
        methods, shown = tuple(recipes or parts.RECIPES), tuple(levels or LEVELS)
        plan = parts.planned(methods, Setting(out, to, ensembles=()), shown, seeds or None, settings)
        chosen = [one for level in plan.grid.values() for one in level]
        check_names(chosen, data)
    if dry_run:
        printing.show_plan(chosen, out, as_json)
        return
    made = studies.study_integral(
        methods,
        levels=shown,
        seeds=seeds or None,
        data=data,
        out=out,
        to=to,
        show=mode(quiet, as_json),
        tensorboard=tensorboard,
        **settings,
    )
    if as_json:
        printing.show_json(to / "integral.json")
    else:
        _show(made)


def _show(made: "IntegralStudy") -> None:
    from subspaces.studies import integral_tables as tables

    first = printing.table(*tables.COLUMNS, title=tables.heading(made), numbers=tables.COLUMNS[3:])
    for line in made.study.lines:
        first.add_row(*map(escape, tables.cells(made, line)))
    printing.show(first)
    second = printing.table(*tables.CHECKED, title="the closed form in each line", numbers=tables.CHECKED[1:])
    for one in made.identities:
        second.add_row(*tables.checked(one))
    printing.closing(second, tables.notes(made), made.files, made.left_out)
