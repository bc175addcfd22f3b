"""`subspaces data list | get | check`."""

import argparse
from typing import Any

from subspaces.cli import parser, printing
from subspaces.cli.errors import usage
from subspaces.errors import ArgumentError
from subspaces.evaluation.display import bars
from subspaces.experiments import data as sets
from subspaces.text import nearest


def add(commands: Any) -> None:
    """Add the commands."""
    group = parser.add_group(commands, "data", "List, fetch and check data sets.")
    parser.add_command(group, list_, name="list")
    fetch, check_ = parser.add_command(group, get), parser.add_command(group, check)
    for command in (fetch, check_):
        command.add_argument("name", metavar="NAME", help="The data set: see `subspaces data list`.")
        parser.add_data(command, code=False)
    parser.add_output(fetch)


def list_(options: argparse.Namespace) -> None:
    """List the data sets, with their size and licence."""
    caption = "`subspaces data get NAME` fetches one from its publisher"
    table = printing.table("data set", "what it is", "size", "licence", caption=caption, names="data set")
    for source in sets.SOURCES.values():
        table.add_row(source.name, source.description, source.size, source.licence)
    printing.show(table)


def get(options: argparse.Namespace) -> None:
    """Fetch a data set from its publisher, check it against the published checksums and unpack it.

    Files that are there and right are left alone, so the same command again fetches what is missing.
    """
    name = options.name
    _check_name(name)
    if options.quiet:
        sets.get(name, options.data)
    else:
        with bars(True) as progress:
            sets.get(name, options.data, progress)
    printing.echo(sets.describe(name, options.data))


def check(options: argparse.Namespace) -> int:
    """Say what is there of a data set, and what is wrong with it; the exit code is 1 if something is."""
    name, data = options.name, options.data
    _check_name(name)
    with bars(True) as progress:
        problems = sets.check(name, data, progress)
    for problem in problems:
        printing.echo(f"wrong: {problem}")
    if not problems:
        printing.echo(sets.describe(name, data))
    return 1 if problems else 0


def _check_name(name: str) -> None:
    with usage():
        if name not in sets.SOURCES:
            raise ArgumentError(f"no data set is called {name!r}: {nearest(name, sets.SOURCES)}")
