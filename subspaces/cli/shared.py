"""The options that several commands have in common, each defined once."""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from subspaces.training.display import Mode

RECIPE = "Recipe: what is trained (what is not given is as in the recipe)"
COMPARISON = "Comparison: what is set against what"
EXECUTION = "Execution: where and how it is trained"
OUTPUT = "Output"


def _search_last(context: typer.Context, folder: Path | None) -> Path | None:
    """Let modules of a folder be imported, after all others, as long as the command runs."""
    if folder is not None:
        if not folder.is_dir():
            raise typer.BadParameter(f"there is no folder {str(folder)!r}; expected that of the network's module")
        entry = str(folder.resolve())
        sys.path.append(entry)
        context.call_on_close(partial(sys.path.remove, entry))
    return folder


Code = Annotated[
    Path | None,
    typer.Option(
        help="The folder with the module of a network of your own (package.module:factory), if it is not installed.",
        metavar="DIR",
        callback=_search_last,
        show_default=False,
        rich_help_panel=EXECUTION,
    ),
]
Recipes = Annotated[list[str], typer.Argument(metavar="RECIPE", help="See `subspaces recipes`.")]
Seeds = Annotated[
    list[int] | None,
    typer.Option(
        help="Train each recipe once for each of these seeds: --seeds 0 1 2.",
        metavar="INT...",
        show_default=False,
        rich_help_panel=RECIPE,
    ),
]
Data = Annotated[Path, typer.Option(help="The folder with the data sets.", metavar="DIR", rich_help_panel=EXECUTION)]
Out = Annotated[
    Path, typer.Option("--out", help="The folder for the runs, one folder each.", metavar="DIR", rich_help_panel=OUTPUT)
]
To = Annotated[
    Path,
    typer.Option("--to", "-o", help="The folder for tables and figures.", metavar="DIR", rich_help_panel=OUTPUT),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress bars, only what comes at the end.", rich_help_panel=OUTPUT)
]
Json = Annotated[bool, typer.Option("--json", help="One line of JSON instead of the tables.", rich_help_panel=OUTPUT)]
TensorBoard = Annotated[
    bool, typer.Option(help="Log for TensorBoard too, where it is installed.", rich_help_panel=OUTPUT)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be trained.", rich_help_panel=OUTPUT)]
Levels = Annotated[
    list[float] | None,
    typer.Option(
        help="Fractions of training labels that are drawn at random.",
        metavar="FLOAT...",
        show_default="0 0.2 0.4 0.6",
        rich_help_panel=RECIPE,
    ),
]
Ensembles = Annotated[
    list[int] | None,
    typer.Option(
        help="Ensembles of so many independent standard runs; by default of 2, where there are as many seeds.",
        metavar="INT...",
        show_default=False,
        rich_help_panel=COMPARISON,
    ),
]
DropoutPasses = Annotated[
    int, typer.Option(help="Passes of MC-dropout, for networks with dropout.", rich_help_panel=COMPARISON)
]


def given(fields: Mapping[str, Any], quiet: bool, as_json: bool, seeds: list[int] | None) -> dict[str, Any]:
    """Return the fields that were given, after refusing options that exclude each other."""
    check_output(quiet, as_json)
    if seeds and fields["seed"] is not None:
        raise ValueError("--seed and --seeds exclude each other")
    return {name: value for name, value in fields.items() if value is not None}


def mode(quiet: bool, as_json: bool) -> Mode:
    """Return how progress is shown while a table is made."""
    return "quiet" if quiet or as_json else "bar"


def check_output(quiet: bool, as_json: bool) -> None:
    """Refuse --quiet with --json, which is quiet anyway."""
    if quiet and as_json:
        raise ValueError("--quiet and --json exclude each other")
