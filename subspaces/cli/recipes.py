"""`subspaces recipes`."""

import argparse
import json
from typing import Any

from rich.markup import escape
from rich.table import Table

from subspaces.cli import parser, printing
from subspaces.cli.errors import usage
from subspaces.evaluation.comparing import in_words
from subspaces.experiments.opening import training_of
from subspaces.experiments.training import RECIPES, Recipe
from subspaces.experiments.training.recipe import all_fields, find


def add(commands: Any) -> None:
    """Add the command."""
    command = parser.add_command(commands, recipes)
    command.add_argument("name", nargs="?", metavar="NAME", help="Show all fields of this one.")
    parser.add_output(command, json="a line of JSON for each recipe", quiet=False)


def recipes(options: argparse.Namespace) -> None:
    """List the recipes that `subspaces train` knows, or show one of them."""
    name = options.name
    with usage():
        chosen = [find(name)] if name is not None else list(RECIPES.values())
    if options.json:
        for recipe in chosen:
            print(json.dumps(recipe.to_dict()))
    else:
        printing.show(_fields(chosen[0]) if name is not None else _list(chosen))


def _list(chosen: list[Recipe]) -> Table:
    caption = "`subspaces recipes NAME` shows all fields, `subspaces train NAME` trains"
    columns = ("recipe", "data set", "network", "method", "epochs")
    table = printing.table(*columns, caption=caption, names="recipe", numbers=("epochs",))
    known = all_fields()
    for recipe in chosen:
        fields = ("dropout", "label_smoothing", "validation", *recipe.definition.own())
        unusual = [name for name in fields if getattr(recipe, name) != known[name].default]
        method = in_words(training_of(recipe), unusual)
        noise = f" ({recipe.label_noise:.0%} label noise)" if recipe.label_noise else ""
        table.add_row(recipe.name, recipe.dataset + noise, recipe.network, method, str(recipe.epochs))
    return table


def _fields(recipe: Recipe) -> Table:
    caption = f"to change some: `subspaces train {recipe.name} --epochs 10 …`"
    table = printing.table("field", "value", "meaning", title=recipe.name, caption=caption, names="field")
    for name, value in recipe.to_dict().items():
        table.add_row(name, escape(str(value) or "–"), escape(all_fields()[name].metadata["help"]))
    return table
