"""`subspaces compare`."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, with_fields, without_rest
from subspaces.cli.shared import (
    EXECUTION,
    RECIPE,
    Data,
    DryRun,
    Json,
    Out,
    Quiet,
    Recipes,
    Seeds,
    TensorBoard,
    To,
    given,
)
from subspaces.cli.train import check_names
from subspaces.training import Execution, Recipe

if TYPE_CHECKING:
    from subspaces.experiments.compare import Comparison

COMPARISON = "Comparison: what is set against what"
WIDE = 172  # columns, for a difference and its interval on one line
OWN = ("ensembles", "reference", "dropout_passes")


@without_rest
@with_fields(Execution, EXECUTION)
@with_fields(Recipe, RECIPE, defaults=False)
def compare(
    recipes: Recipes,
    seeds: Seeds = None,
    ensembles: Annotated[
        list[int] | None,
        typer.Option(
            help="Ensembles of so many independent standard runs; by default of 2, where there are as many seeds.",
            metavar="INT...",
            show_default=False,
            rich_help_panel=COMPARISON,
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="The recipe that all are compared with; by default the first standard one.",
            metavar="RECIPE",
            show_default=False,
            rich_help_panel=COMPARISON,
        ),
    ] = None,
    dropout_passes: Annotated[
        int, typer.Option(help="Passes of MC-dropout, for networks with dropout.", rich_help_panel=COMPARISON)
    ] = 20,
    dry_run: DryRun = False,
    data: Data = ROOT,
    out: Out = Path("runs"),
    to: To = Path("comparison"),
    quiet: Quiet = False,
    as_json: Json = False,
    tensorboard: TensorBoard = True,
    **fields: Any,
) -> None:
    """Train and evaluate what is missing of several methods, and print and write one table of them all.

    Accuracy, NLL, ECE, Brier score and costs of every way in which a method answers, and differences that are
    paired by the seed. The same command again continues what was stopped; nothing is trained or measured twice.

    Example: subspaces compare digits-standard digits-line digits-simplex --seeds 0 1 2 -o comparison
    """
    from subspaces import experiments
    from subspaces.experiments import setting as parts

    with usage(), typed(OWN):
        settings = given(fields, quiet, as_json, seeds)
        chosen, execution = parts.prepared(recipes, seeds or None, settings)
        check_names(chosen, data)
        parts.reference_of(chosen, reference)
        parts.check(chosen, parts.Setting(ensembles=None if not ensembles else tuple(ensembles), passes=dropout_passes))
    if dry_run:
        show_plan(chosen, out, as_json)
        return
    made = experiments.compare(
        chosen,
        ensembles=ensembles or None,
        reference=reference,
        dropout_passes=dropout_passes,
        data=data,
        out=out,
        to=to,
        show="quiet" if quiet or as_json else "bar",
        tensorboard=tensorboard,
        **execution,
    )
    if as_json:
        typer.echo(json.dumps(json.loads((to / "comparison.json").read_bytes())))
    else:
        _show(made)


@contextmanager
def typed(names: tuple[str, ...]) -> Iterator[None]:
    """Name options as they are typed in errors about them."""
    try:
        yield
    except ValueError as error:
        name, equals, rest = str(error).partition("=")
        if name not in names or not equals:
            raise
        raise ValueError(f"--{name.replace('_', '-')}={rest}") from None


def show_plan(recipes: list[Recipe], out: Path, as_json: bool) -> None:
    """Print what would be done for each run."""
    from subspaces.experiments.setting import plan

    planned = plan(recipes, out)
    if as_json:
        for run, state in planned:
            typer.echo(json.dumps({"run": run.folder.name, "folder": str(run.folder), "state": state}))
        return
    training = sum(state in ("to train", "to continue") for _, state in planned)
    caption = f"{training} of {len(planned)} runs would be trained; nothing was done"
    table = printing.table("recipe", "seed", "epochs", "state", "folder", caption=caption, numbers=("seed", "epochs"))
    for run, state in planned:
        one = run.recipe
        table.add_row(escape(one.name), str(one.seed), str(one.epochs), state, escape(str(run.folder)))
    printing.show(table)


def _show(made: "Comparison") -> None:
    """Print the table, its notes and where everything is."""
    from subspaces.experiments import tables

    narrow = sys.stdout.isatty() and Console().width < WIDE
    table = printing.table(*tables.COLUMNS, title=tables.heading(made), numbers=tables.COLUMNS[2:])
    for entry in made.entries:
        texts = tables.cells(made, entry)
        table.add_row(*(escape(text.replace(" [", "\n[") if narrow else text) for text in texts))
    closing(table, tables.notes(made), made.files, made.left_out)


def closing(table: Table, notes: list[str], files: list[Path], left_out: list[str]) -> None:
    """Print a table and its notes, and say what was written and what could not be."""
    printing.show(table)
    for note in notes:
        typer.echo(f"- {note}")
    typer.echo(f"wrote {', '.join(map(str, files))}")
    for reason in left_out:
        typer.echo(reason, err=True)
