"""`subspaces compare`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, with_fields
from subspaces.cli.shared import (
    COMPARISON,
    EXECUTION,
    RECIPE,
    Code,
    Data,
    DropoutPasses,
    DryRun,
    Ensembles,
    Json,
    Out,
    Quiet,
    Recipes,
    Seeds,
    TensorBoard,
    To,
    given,
    mode,
)
from subspaces.cli.train import check_names
from subspaces.evaluation.dropout import PASSES
from subspaces.training import Execution, Recipe

if TYPE_CHECKING:
    from subspaces.studies.compare import Comparison

WIDE = 172  # columns, for a difference and its interval on one line


@with_fields(Execution, EXECUTION)
@with_fields(Recipe, RECIPE, defaults=False)
def compare(
    recipes: Recipes,
    seeds: Seeds = None,
    ensembles: Ensembles = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="The recipe that all are compared with; by default the first standard one.",
            metavar="RECIPE",
            show_default=False,
            rich_help_panel=COMPARISON,
        ),
    ] = None,
    dropout_passes: DropoutPasses = PASSES,
    dry_run: DryRun = False,
    data: Data = ROOT,
    code: Code = None,
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
    from subspaces import studies
    from subspaces.studies import setting as parts

    with usage("ensembles", "reference", "dropout_passes", "to"):
        settings = given(fields, quiet, as_json, seeds)
        chosen, execution = parts.prepared(recipes, seeds or None, settings)
        check_names(chosen, data)
        parts.reference_of(chosen, reference)
        setting = parts.Setting(out, to, ensembles=tuple(ensembles) if ensembles else None, passes=dropout_passes)
        parts.check(chosen, setting)
    if dry_run:
        printing.show_plan(chosen, out, as_json)
        return
    made = studies.compare(
        chosen,
        ensembles=ensembles or None,
        reference=reference,
        dropout_passes=dropout_passes,
        data=data,
        out=out,
        to=to,
        show=mode(quiet, as_json),
        tensorboard=tensorboard,
        **execution,
    )
    if as_json:
        printing.show_json(to / "comparison.json")
    else:
        _show(made)


def _show(made: "Comparison") -> None:
    """Print the table, its notes and where everything is."""
    from subspaces.studies import tables

    narrow = sys.stdout.isatty() and Console().width < WIDE
    table = printing.table(*tables.COLUMNS, title=tables.heading(made), numbers=tables.COLUMNS[2:])
    for entry in made.entries:
        texts = tables.cells(made, entry)
        table.add_row(*(escape(text.replace(" [", "\n[") if narrow else text) for text in texts))
    printing.closing(table, tables.notes(made), made.files, made.left_out)
