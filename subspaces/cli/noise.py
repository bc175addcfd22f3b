"""`subspaces study noise`."""

from collections.abc import Iterator
from contextlib import contextmanager
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
    DropoutPasses,
    DryRun,
    Ensembles,
    Json,
    Levels,
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
    from subspaces.studies.noise import Study

STUDY = "Study: levels, and settings to choose from"


@with_fields(Execution, EXECUTION)
@with_fields(Recipe, RECIPE, defaults=False, without=("label_noise",))
def noise(
    recipes: Recipes,
    levels: Levels = None,
    dropout_rates: Annotated[
        list[float] | None,
        typer.Option(
            help="Rates of dropout to choose from, on standard training; 0 leaves dropout out.",
            metavar="FLOAT...",
            show_default="0.05 0.1 0.2 0.4 0.8",
            rich_help_panel=STUDY,
        ),
    ] = None,
    smoothing_rates: Annotated[
        list[float] | None,
        typer.Option(
            help="Rates of label smoothing to choose from, on standard training; 0 leaves it out.",
            metavar="FLOAT...",
            show_default="0.05 0.1 0.2 0.4 0.8",
            rich_help_panel=STUDY,
        ),
    ] = None,
    by: Annotated[
        str, typer.Option(help="The metric that chooses, on held-out images.", metavar="NAME", rich_help_panel=STUDY)
    ] = "accuracy",
    seeds: Seeds = None,
    ensembles: Ensembles = None,
    dropout_passes: DropoutPasses = PASSES,
    dry_run: DryRun = False,
    data: Data = ROOT,
    code: Code = None,
    out: Out = Path("runs"),
    to: To = Path("noise"),
    quiet: Quiet = False,
    as_json: Json = False,
    tensorboard: TensorBoard = True,
    **fields: Any,
) -> None:
    """Compare methods over levels of label noise: accuracy and calibration, one table and one figure.

    Dropout and label smoothing are tried at several rates; the best on held-out images (--validation) is reported,
    and beside it, marked, the best on the test set. The same command again continues what was stopped.

    Example: subspaces study noise cifar10-standard cifar10-simplex --validation 5000 --seeds 0 1 -o noise
    """
    from subspaces import studies
    from subspaces.studies import noise as parts
    from subspaces.studies.setting import Setting

    with usage("ensembles", "dropout_passes", "by", "to"), _how_to_leave_dropout_out():
        settings = given(fields, quiet, as_json, seeds)
        lists = {"dropout": dropout_rates or parts.RATES, "label_smoothing": smoothing_rates or parts.RATES}
        shown = parts.LEVELS if not levels else tuple(levels)
        setting = Setting(out, to, ensembles=tuple(ensembles) if ensembles else None, passes=dropout_passes)
        plan = parts.planned(recipes, setting, shown, lists, by, seeds or None, settings)
        chosen = [one for level in plan.grid.values() for one in level]
        check_names(chosen, data)
    if dry_run:
        printing.show_plan(chosen, out, as_json)
        return
    with _how_to_leave_dropout_out():
        made = studies.study_noise(
            recipes,
            levels=shown,
            lists=lists,
            by=by,
            seeds=seeds or None,
            ensembles=ensembles or None,
            dropout_passes=dropout_passes,
            data=data,
            out=out,
            to=to,
            show=mode(quiet, as_json),
            tensorboard=tensorboard,
            **settings,
        )
    if as_json:
        printing.show_json(to / "noise.json")
    else:
        _show(made)


@contextmanager
def _how_to_leave_dropout_out() -> Iterator[None]:
    """Add to what a network without dropout is refused with."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("dropout="):
            raise
        raise ValueError(f"{error}; --dropout-rates 0 leaves dropout out of the study") from None


def _show(made: "Study") -> None:
    from subspaces.studies import noise_tables

    numbers = ("chosen", *noise_tables.COLUMNS[4:])
    table = printing.table(*noise_tables.COLUMNS, title=noise_tables.heading(made), numbers=numbers)
    for line in made.lines:
        table.add_row(*map(escape, noise_tables.cells(made, line)))
    printing.closing(table, noise_tables.notes(made), made.files, made.left_out)
