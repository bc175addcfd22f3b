"""`subspaces train` and `subspaces demo`: training, and the results as a table."""

import argparse
import json
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from subspaces.cli import parser, printing
from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation import statistics
from subspaces.evaluation.comparing import GroupAnswer
from subspaces.experiments import demo as study
from subspaces.experiments.training import Execution, Recipe, Run, api
from subspaces.experiments.training.display import Mode
from subspaces.experiments.training.execution import started

WIDTH = 80  # of the sentence of the demo
BESIDE = ("accuracy in % across the simplex:", "vertices at the corners,", "[midpoint] in brackets")  # the picture


def add(commands: Any) -> None:
    """Add the commands."""
    command = parser.add_command(commands, demo)
    for name, type_, text in (
        ("seeds", int, "How many times everything is trained."),
        ("epochs", int, "Epochs for each network and each simplex."),
        ("label_noise", float, "Fraction of random training labels."),
    ):
        default = getattr(study.Setting, name)
        option, metavar = f"--{name.replace('_', '-')}", type_.__name__.upper()
        command.option(option, type=type_, metavar=metavar, default=default, help=f"{text} Default: {default}.")
    parser.add_output(command, Path("demo"), "The folder for the runs and the report.")

    command = parser.add_command(commands, train)
    parser.add_recipes(command)
    parser.add_seeds(command)
    parser.add_fields(command, Recipe, parser.RECIPE)
    parser.add_data(command)
    parser.add_fields(command, Execution, parser.EXECUTION)
    json = "a line of JSON for each epoch and each finished run"
    parser.add_output(command, Path("runs"), "The folder for the runs, one folder each.", json=json)


def train(options: argparse.Namespace) -> None:
    """Train recipes and show how good they are.

    Each run gets a folder of its own, named by its configuration. The same command again continues a run that was
    stopped and leaves a finished one alone.

    Several processes train one run after the other together, each with a GPU and a share of every batch:

    torchrun --nproc-per-node 4 -m subspaces train imagenet-resnet50-line

    Example: subspaces train digits-standard digits-line --seeds 0 1 2 --epochs 20
    """
    chosen, execution = api.configure(options.recipes, options.seeds, parser.changes(options), options.data)
    out = checks.folder("out", options.out)
    before = {run.folder for run in (Run.under(out, recipe) for recipe in chosen) if run.finished}
    show: Mode = "json" if options.json else "quiet" if options.quiet else "bar"
    where = {"data": options.data, "out": out}
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
        printing.add_row(table, run.recipe.name, run.recipe.seed, result["epoch"], *accuracies, *spread, run.folder)
    printing.show(table)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def demo(options: argparse.Namespace) -> None:
    """Train networks and simplexes of networks on scikit-learn's digits, compare them and write a report.

    What is in the folder already is not trained again.
    """
    torch.set_num_threads(1)  # the networks are so small that more threads only wait for each other
    setting = study.Setting(seeds=options.seeds, epochs=options.epochs, label_noise=options.label_noise)
    if options.out.exists() and not options.out.is_dir():
        raise ArgumentError(f"out={options.out}: it is a file, expected a folder")
    result = study.run(setting, options.out, "quiet" if options.quiet else "bar")
    for line in textwrap.wrap(study.headline(result.answers), WIDTH):
        printing.echo(line)
    _show_demo(result.answers, setting)
    for line, words in zip_longest(study.picture(result.triangle), BESIDE, fillvalue=""):
        printing.echo(f"  {line:<44}{words}".rstrip())
    if result.report is None:
        printing.echo("For the report page: pip install 'subspaces[report]', then the same command again")
    else:
        printing.echo(f"The report: {result.report.resolve()}")


def _show_demo(answers: dict[str, GroupAnswer], setting: study.Setting) -> None:
    """Print the table of the demo."""
    numbers = ("accuracy %", "ECE %", "trained", "at test")
    table = printing.table(
        *("prediction by", *numbers),
        title=f"digits, {setting.label_noise:.0%} random training labels, {setting.epochs} epochs, "
        f"mean ± std of {setting.seeds} seeds",
        caption=study.better(answers),
        numbers=numbers,
    )
    for name, one in answers.items():
        spread = [statistics.shown(one.spread(metric), 100, 1) for metric in ("accuracy", "ece")]
        printing.add_row(table, name, *spread, one.runs, one.networks)
    printing.show(table)
