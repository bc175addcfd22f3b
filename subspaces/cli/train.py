"""`subspaces train`."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from subspaces.cli import parser, printing
from subspaces.cli.errors import usage
from subspaces.experiments.training import Execution, Recipe, Run, api
from subspaces.experiments.training.display import Mode
from subspaces.experiments.training.execution import started


def add(commands: Any) -> None:
    """Add the command."""
    command = parser.add_command(commands, train)
    parser.add_recipes(command)
    parser.add_seeds(command)
    parser.add_fields(command, Recipe, parser.RECIPE)
    parser.add_data(command)
    parser.add_fields(command, Execution, parser.EXECUTION)
    json = "a line of JSON for each epoch and each finished run"
    parser.add_output(command, Path("runs"), "The folder for the runs, one folder each.", json=json)
    parser.add_tensorboard(command)


def train(options: argparse.Namespace) -> None:
    """Train recipes and show how good they are.

    Each run gets a folder of its own, named by its configuration. The same command again continues a run that was
    stopped and leaves a finished one alone.

    Several processes train one run after the other together, each with a GPU and a share of every batch:
    torchrun --nproc-per-node 4 -m subspaces train imagenet-resnet50-line

    Example: subspaces train digits-standard digits-line --seeds 0 1 2 --epochs 20
    """
    with usage():
        changes = parser.changes(options)
        chosen, execution = api.configure(options.recipes, options.seeds, changes, options.data)
    before = {run.folder for run in (Run.under(options.out, recipe) for recipe in chosen) if run.finished}
    show: Mode = "json" if options.json else "quiet" if options.quiet else "bar"
    where = {"data": options.data, "out": options.out, "tensorboard": options.tensorboard}
    runs = api.train_recipes(chosen, execution, show=show, **where)
    if started()[0]:
        return  # the first process prints what all have done
    if options.json:
        for run in runs:
            print(json.dumps(_summary(run, run.folder in before)))
        return
    _show(runs)
    if before:
        names = ", ".join(run.folder.name for run in runs if run.folder in before)
        printing.echo(f"Finished before, and not trained again: {names}")


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
    caption = "train: during training, with its labels; others: the method's own answer; L2, cos²: between vertices"
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
