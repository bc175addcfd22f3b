"""`subspaces data list | get | check`."""

import math
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT
from subspaces.cli.shared import Data, Quiet, data_names, option
from subspaces.errors import ArgumentError
from subspaces.experiments import data as sets
from subspaces.experiments.training.display import progress_bar
from subspaces.text import nearest

app = typer.Typer(help="List, fetch and check data sets.", no_args_is_help=True)
Name = Annotated[
    str,
    typer.Argument(help="The data set: see `subspaces data list`.", autocompletion=data_names),
]


@app.command("list")
def list_() -> None:
    """List the data sets, with their size and licence."""
    caption = "`subspaces data get NAME` fetches one from its publisher"
    table = printing.table("data set", "what it is", "size", "licence", caption=caption, names="data set")
    for source in sets.SOURCES.values():
        table.add_row(source.name, source.description, source.size, source.licence)
    printing.show(table)


@app.command()
def get(
    name: Name,
    data: Data = ROOT,
    base_url: Annotated[str | None, option("Fetch the same files from this address.", "URL")] = None,
    limit_gb: Annotated[
        float | None,
        option(
            "Refuse archives that unpack to more than this many GB.",
            "FLOAT",
            default="10, and no more than 100 times their size",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set from its publisher, check it against the published checksums and unpack it.

    The same command again continues what was stopped; files that are there and right are left alone.
    """
    _check_name(name)
    with usage("limit_gb"):
        if limit_gb is not None and not 0 < limit_gb < math.inf:
            raise ArgumentError(f"limit_gb={limit_gb:g}: expected a number of more than 0")
    limit = None if limit_gb is None else int(limit_gb * 10**9)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bars:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=total or None)

        sets.get(name, data, progress, base_url=base_url, limit=limit)
    printing.echo(sets.describe(name, data))


@app.command()
def check(name: Name, data: Data = ROOT) -> None:
    """Say what is there of a data set, and what is wrong with it; the exit code is 1 if something is."""
    _check_name(name)
    with progress_bar("bar") as progress:
        problems = sets.check(name, data, progress)
    for problem in problems:
        printing.echo(f"wrong: {problem}")
    if problems:
        raise typer.Exit(1)
    printing.echo(sets.describe(name, data))


def _check_name(name: str) -> None:
    with usage():
        if name not in sets.SOURCES:
            raise ArgumentError(f"no data set is called {name!r}: {nearest(name, sets.SOURCES)}")
