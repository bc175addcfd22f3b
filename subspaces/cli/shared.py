"""The options that several commands have in common, each defined once, and the names that a shell completes."""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from subspaces.errors import ArgumentError
from subspaces.evaluation.metrics import METRICS
from subspaces.experiments.data import SOURCES
from subspaces.experiments.training import RECIPES
from subspaces.reports.figures import KINDS

RECIPE = "Recipe: what is trained (what is not given is as in the recipe)"
COMPARISON = "Comparison: what is compared with what"
EXECUTION = "Execution: where and how it runs"
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


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return what a shell asks for the ends of a word; the names are those that there are then."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


recipe_names = completing(lambda: RECIPES)
metric_names = completing(lambda: METRICS)
data_names = completing(lambda: SOURCES)
figure_names = completing(lambda: KINDS)


def option(help: str, metavar: str | None, panel: str | None = None, default: bool | str = False, **more: Any) -> Any:
    """Return an option that shows no default, or this one."""
    return typer.Option(help=help, metavar=metavar, show_default=default, rich_help_panel=panel, **more)


Code = Annotated[
    Path | None,
    option(
        "The folder with the module of your own network (package.module:factory), if it is not installed.",
        "DIR",
        EXECUTION,
        callback=_search_last,
    ),
]
Recipes = Annotated[
    list[str],
    typer.Argument(metavar="RECIPE", help="See `subspaces recipes`.", autocompletion=recipe_names),
]
RunFolders = Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of finished runs.")]
Seeds = Annotated[
    list[int] | None,
    option("Train each recipe once for each of these seeds: --seeds 0 1 2.", "INT...", RECIPE),
]
Data = Annotated[Path, option("The folder with the data sets.", "DIR", EXECUTION, True)]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Also run code that files name: the network (package.module:factory) of a run or an export; a .pt2 file.",
        rich_help_panel=EXECUTION,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress bars, only the result.", rich_help_panel=OUTPUT)
]
TensorBoard = Annotated[
    bool, typer.Option(help="Also log for TensorBoard, if it is installed.", rich_help_panel=OUTPUT)
]


def json_option(what: str) -> Any:
    """Return the option --json, which prints `what`."""
    return typer.Option("--json", help=f"Print {what}.", rich_help_panel=OUTPUT)


def out_option(what: str, metavar: str) -> Any:
    """Return the option --out: where `what` this command makes goes."""
    return typer.Option("--out", "-o", help=what, metavar=metavar, rich_help_panel=OUTPUT)


def given(fields: Mapping[str, Any], quiet: bool, as_json: bool, seeds: list[int] | None) -> dict[str, Any]:
    """Return the fields that were given, after refusing options that exclude each other."""
    check_output(quiet, as_json)
    if seeds and fields["seed"] is not None:
        raise ArgumentError("--seed and --seeds exclude each other")
    return {name: value for name, value in fields.items() if value is not None}


def check_output(quiet: bool, as_json: bool) -> None:
    """Refuse --quiet with --json, which is quiet anyway."""
    if quiet and as_json:
        raise ArgumentError("--quiet and --json exclude each other")
