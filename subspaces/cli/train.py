"""`subspaces train`."""

import dataclasses
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.markup import escape

from subspaces import networks, training
from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, with_fields
from subspaces.cli.shared import EXECUTION, OUTPUT, RECIPE, Code, Data, Out, Quiet, Recipes, Seeds, TensorBoard, given
from subspaces.data.loading import check_name_and_root
from subspaces.networks import registry
from subspaces.text import nearest
from subspaces.training import Execution, Recipe, Run, feasible
from subspaces.training.api import configure


@with_fields(Execution, EXECUTION)
@with_fields(Recipe, RECIPE, defaults=False)
def train(
    recipes: Recipes,
    seeds: Seeds = None,
    data: Data = ROOT,
    code: Code = None,
    out: Out = Path("runs"),
    quiet: Quiet = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="A line of JSON for each epoch and each finished run.", rich_help_panel=OUTPUT),
    ] = False,
    tensorboard: TensorBoard = True,
    **fields: Any,
) -> None:
    """Train recipes and show how good they are.

    Each run gets a folder of its own, named by its configuration.
    The same command again continues a run that was stopped and leaves a finished one alone.

    Example: subspaces train digits-standard digits-line --seeds 0 1 2 --epochs 20
    """
    with usage():
        chosen, _ = configure(recipes, seeds or None, given(fields, quiet, as_json, seeds))
        check_names(chosen, data)
    execution = {entry.name: fields[entry.name] for entry in dataclasses.fields(Execution)}
    before = {run.folder for run in (Run.under(out, recipe) for recipe in chosen) if run.finished}
    runs = training.train(
        chosen,
        data=data,
        out=out,
        show="json" if as_json else "quiet" if quiet else "bar",
        tensorboard=tensorboard,
        **execution,
    )
    if as_json:
        for run in runs:
            typer.echo(json.dumps(_summary(run, run.folder in before)))
    else:
        _show(runs)
        if before:
            names = ", ".join(run.folder.name for run in runs if run.folder in before)
            typer.echo(f"Finished before, and not trained again: {names}")


def check_names(recipes: Sequence[Recipe], data: Path) -> None:
    """Refuse data sets and networks that do not exist, or have no dropout, before any work is done.

    Nor may more images be held out than there are, or a batch be too small for the network's batch norm.
    """
    for recipe in recipes:
        with suppress(FileNotFoundError):  # a finished run needs no data
            check_name_and_root(recipe.dataset, data)
        if ":" not in recipe.network and recipe.network not in networks.names():
            known = (*networks.names(), "timm:NAME", "torchvision:NAME", "package.module:factory")
            raise ValueError(f"no network is called {recipe.network!r}: {nearest(recipe.network, known)}")
        registry.check_name(recipe.network)
    feasible.check(recipes, data)
    for name, dropout in {(one.network, one.dropout) for one in recipes if one.dropout and ":" not in one.network}:
        with torch.device("meta"):  # which takes no memory
            networks.build(name, classes=10, image_shape=(3, 32, 32), dropout=dropout)


def _summary(run: Run, before: bool) -> dict[str, Any]:
    recipe = run.recipe
    return {
        "run": run.folder.name,
        "recipe": recipe.name,
        "seed": recipe.seed,
        "folder": str(run.folder),
        "finished_before": before,
        "result": run.result,
    }


def _show(runs: Sequence[Run]) -> None:
    """Print the final numbers of each run."""
    results = [run.result for run in runs]
    held_out = [name for name in ("validation", "test") if any(f"{name}_accuracy" in result for result in results)]
    numbers = ("seed", "epochs", "train %", *(f"{name} %" for name in held_out), "L2", "cos²")
    caption = (
        "train: on the way, with the labels trained on; others: the method's own answer; L2, cos²: between vertices"
    )
    table = printing.table("recipe", *numbers, "folder", caption=caption, numbers=numbers)
    for run, result in zip(runs, results, strict=True):
        accuracies = [_percent(result.get(f"{name}_accuracy")) for name in ("train", *held_out)]
        single = run.recipe.result_shape().vertices == 1
        spread = ("–", "–") if single else (f"{result['l2']:.1f}", f"{result['cos2']:.3f}")
        row = (str(run.recipe.seed), str(result["epoch"]), *accuracies, *spread)
        table.add_row(escape(run.recipe.name), *row, escape(str(run.folder)))
    printing.show(table)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"
