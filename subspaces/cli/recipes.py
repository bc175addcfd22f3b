"""`subspaces recipes`."""

import dataclasses
import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.training import RECIPES, Recipe, methods
from subspaces.training.recipes import find


def recipes(
    name: Annotated[str | None, typer.Argument(help="Show all fields of this one.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each recipe.")] = False,
) -> None:
    """List the recipes that `subspaces train` knows, or show one of them."""
    with usage():
        chosen = [find(name)] if name is not None else list(RECIPES.values())
    if as_json:
        for recipe in chosen:
            typer.echo(json.dumps(recipe.to_dict()))
    else:
        printing.show(_fields(chosen[0]) if name is not None else _list(chosen))


def _list(chosen: list[Recipe]) -> Table:
    caption = "`subspaces recipes NAME` shows all fields, `subspaces train NAME` trains"
    columns = ("recipe", "data set", "network", "method", "epochs")
    table = printing.table(*columns, caption=caption, names="recipe", numbers=("epochs",))
    for recipe in chosen:
        noise = f" ({recipe.label_noise:.0%} label noise)" if recipe.label_noise else ""
        table.add_row(recipe.name, recipe.dataset + noise, recipe.network, _method(recipe), str(recipe.epochs))
    return table


def _method(recipe: Recipe) -> str:
    """Return in words what is learned."""
    words: str = "one network" if recipe.method == "standard" else recipe.method
    if recipe.method in methods.COUNTED:
        words += f", {recipe.vertices} {methods.vertices(recipe.method)}"
    settings = [
        ", layerwise" if recipe.layerwise else "",
        f", dropout {recipe.dropout:g}" if recipe.dropout else "",
        f", label smoothing {recipe.label_smoothing:g}" if recipe.label_smoothing else "",
        f", {recipe.samples} points a batch" if recipe.samples > 1 else "",
        f", λ = {recipe.feature_similarity:g}" if recipe.feature_similarity else "",
        f", {recipe.validation} images held out" if recipe.validation else "",
    ]
    return words + "".join(settings)


def _fields(recipe: Recipe) -> Table:
    caption = f"to change some: `subspaces train {recipe.name} --epochs 10 …`"
    table = printing.table("field", "value", "meaning", title=recipe.name, caption=caption, names="field")
    for entry in dataclasses.fields(recipe):
        table.add_row(entry.name, escape(str(getattr(recipe, entry.name))), escape(entry.metadata["help"]))
    return table
