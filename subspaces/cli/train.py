"""`subspaces train`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from subspaces.cli import printing, shared
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, with_fields
from subspaces.experiments.training import Execution, Recipe, Run, api
from subspaces.experiments.training.display import Mode
from subspaces.experiments.training.world import started


@with_fields(Execution, shared.EXECUTION)
@with_fields(Recipe, shared.RECIPE, defaults=False)
def train(
    recipes: shared.Recipes,
    seeds: shared.Seeds = None,
    data: shared.Data = ROOT,
    code: shared.Code = None,
    out: Annotated[Path, shared.out_option("The folder for the runs, one folder each.", "DIR")] = Path("runs"),
    quiet: shared.Quiet = False,
    as_json: Annotated[bool, shared.json_option("a line of JSON for each epoch and each finished run")] = False,
    tensorboard: shared.TensorBoard = True,
    **fields: Any,
) -> None:
    """Train recipes and show how good they are.

    Each run gets a folder of its own, named by its configuration.
    The same command again continues a run that was stopped and leaves a finished one alone.

    Several processes train one run after the other together, each with a GPU and a share of every batch:
    torchrun --nproc-per-node 4 -m subspaces train imagenet-resnet50-line

    Example: subspaces train digits-standard digits-line --seeds 0 1 2 --epochs 20
    """
    with usage():
        chosen, execution = api.configure(recipes, seeds or None, shared.given(fields, quiet, as_json, seeds), data)
    before = {run.folder for run in (Run.under(out, recipe) for recipe in chosen) if run.finished}
    show: Mode = "json" if as_json else "quiet" if quiet else "bar"
    runs = api.train_recipes(chosen, execution, data=data, out=out, show=show, tensorboard=tensorboard)
    rank, _ = started()
    if rank:
        return  # the first process tells what all have done
    if as_json:
        for run in runs:
            typer.echo(json.dumps(_summary(run, run.folder in before)))
    else:
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
