"""`subspaces data list | get | check`."""

from typing import Annotated

import typer

from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT
from subspaces.cli.shared import Data, Quiet, data_names
from subspaces.errors import ArgumentError
from subspaces.evaluation.display import bars
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
def get(name: Name, data: Data = ROOT, quiet: Quiet = False) -> None:
    """Fetch a data set from its publisher, check it against the published checksums and unpack it.

    Files that are there and right are left alone, so the same command again fetches what is missing.
    """
    _check_name(name)
    if quiet:
        sets.get(name, data)
    else:
        with bars(True) as progress:
            sets.get(name, data, progress)
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
