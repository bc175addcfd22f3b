"""`subspaces recipes`, `subspaces data list | get | check` and `subspaces check`: what there is."""

import argparse
from typing import Any

from rich.table import Table

from subspaces.cli import parser, printing
from subspaces.errors import ArgumentError
from subspaces.evaluation.comparing import in_words
from subspaces.evaluation.display import bars
from subspaces.experiments import data as sets
from subspaces.experiments.evaluating.integrity import checked
from subspaces.experiments.opening import training_of
from subspaces.experiments.training import RECIPES, Recipe
from subspaces.experiments.training.recipe import all_fields, find
from subspaces.text import nearest


def add(commands: Any) -> None:
    """Add the commands."""
    command = parser.add_command(commands, check)
    parser.add_runs(command, "A run folder, or a folder of run folders.")
    command.option("--quiet", "-q", action="store_true", help="Print only what is wrong.")
    command = parser.add_command(commands, recipes)
    command.option("name", nargs="?", metavar="NAME", help="Show all fields of this one.")
    group = parser.add_group(commands, "data", "List, fetch and check data sets.")
    parser.add_command(group, list_data, name="list")
    fetch, verify = parser.add_command(group, get_data, name="get"), parser.add_command(group, check_data, name="check")
    for command in (fetch, verify):
        command.option("name", metavar="NAME", help="The data set: see `subspaces data list`.")
        parser.add_data(command, code=False)
    parser.add_output(fetch)


def check(options: argparse.Namespace) -> int:
    """Check that run folders are as they were written: every file against its checksum, and against each other.

    Says what is wrong and what to do about it; the exit code is 1 if something is.

    Example: subspaces check runs
    """
    wrong = 0
    for folder in options.runs:
        for path, problems in checked(folder):
            for problem in problems:
                printing.echo(f"wrong: {problem}")
            if not problems and not options.quiet:
                printing.echo(f"whole: {path}")
            wrong += len(problems)
    return 1 if wrong else 0


def recipes(options: argparse.Namespace) -> None:
    """List the recipes that `subspaces train` knows, or show one of them."""
    printing.show(_list() if options.name is None else _fields(find(options.name)))


def _list() -> Table:
    caption = "`subspaces recipes NAME` shows all fields, `subspaces train NAME` trains"
    columns = ("recipe", "data set", "network", "method", "epochs")
    table = printing.table(*columns, caption=caption, names="recipe", numbers=("epochs",))
    known = all_fields()
    for recipe in RECIPES.values():
        fields = ("dropout", "label_smoothing", "validation", *recipe.definition.own())
        unusual = [name for name in fields if getattr(recipe, name) != known[name].default]
        method = in_words(training_of(recipe), unusual)
        noise = f" ({recipe.label_noise:.0%} label noise)" if recipe.label_noise else ""
        printing.add_row(table, recipe.name, recipe.dataset + noise, recipe.network, method, recipe.epochs)
    return table


def _fields(recipe: Recipe) -> Table:
    caption = f"to change some: `subspaces train {recipe.name} --epochs 10 …`"
    table = printing.table("field", "value", "meaning", title=recipe.name, caption=caption, names="field")
    for name, value in recipe.to_dict().items():
        printing.add_row(table, name, str(value) or "–", all_fields()[name].metadata["help"])
    return table


def list_data(options: argparse.Namespace) -> None:
    """List the data sets, with their size and licence."""
    caption = "`subspaces data get NAME` fetches one from its publisher"
    table = printing.table("data set", "what it is", "size", "licence", caption=caption, names="data set")
    for source in sets.SOURCES.values():
        printing.add_row(table, source.name, source.description, source.size, source.licence)
    printing.show(table)


def get_data(options: argparse.Namespace) -> None:
    """Fetch a data set from its publisher, check it against the published checksums and unpack it.

    Files that are there and right are left alone, so the same command again fetches what is missing.
    """
    name = _known(options.name)
    with bars(not options.quiet) as progress:
        sets.get(name, options.data, progress)
    printing.echo(sets.describe(name, options.data))


def check_data(options: argparse.Namespace) -> int:
    """Say what is there of a data set, and what is wrong with it; the exit code is 1 if something is."""
    name, data = _known(options.name), options.data
    with bars(True) as progress:
        problems = sets.check(name, data, progress)
    for problem in problems:
        printing.echo(f"wrong: {problem}")
    if not problems:
        printing.echo(sets.describe(name, data))
    return 1 if problems else 0


def _known(name: str) -> str:
    if name not in sets.SOURCES:
        raise ArgumentError(f"no data set is called {name!r}: {nearest(name, sets.SOURCES)}")
    return name
