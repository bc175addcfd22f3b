"""`subspaces compare` and `subspaces study noise | grid | integral | instability`: many runs, one table."""

import argparse
import json
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from subspaces.cli import parser, printing
from subspaces.cli.parser import Parser
from subspaces.errors import ArgumentError
from subspaces.experiments.studies import grid as grids
from subspaces.experiments.studies import instability as branches
from subspaces.experiments.studies import setting
from subspaces.experiments.studies.compare import plan as plan_comparison
from subspaces.experiments.studies.setting import Plan, Setting
from subspaces.experiments.studies.tables import Result
from subspaces.experiments.training import Execution, Recipe

COMPARISON = "comparison"
STUDY = "study"
RATES = "Rates of {} to try on standard training; 0 leaves it out. Default: 0.05 0.1 0.2 0.4 0.8."
LEVELS = "Fractions of training labels that are drawn at random. Default: 0 0.2 0.4 0.6."
Planner = Callable[[argparse.Namespace, Setting], Plan[Any]]


def add(commands: Any) -> None:
    """Add the commands."""
    command = _add(commands, compare, "comparison")
    parser.add_recipes(command)
    _add_ensembles(command)
    text = "The recipe that all are compared with. Default: the first standard one."
    command.option("--reference", panel=COMPARISON, metavar="RECIPE", help=text)

    group = parser.add_group(commands, "study", "Run a study: many runs, one table and one figure.")
    command = _add(group, noise, "noise", without=["label_noise"])
    command.typed = {"label_noise": "levels", "dropout": "dropout-rates", "label_smoothing": "smoothing-rates"}
    parser.add_recipes(command)
    command.numbers("--levels", float, LEVELS, STUDY)
    for name, words in (("--dropout-rates", "dropout"), ("--smoothing-rates", "label smoothing")):
        command.numbers(name, float, RATES.format(words), STUDY)
    text = "The metric that chooses among them, on held-out images. Default: accuracy."
    command.option("--by", panel=STUDY, metavar="NAME", default="accuracy", help=text)
    _add_ensembles(command)
    command = _add(group, grid, "grid")
    parser.add_recipes(command)
    command.option("--over", panel=STUDY, metavar="NAME", required=True, help="The field of recipes that is varied.")
    command.numbers("--values", float, "Its values.", STUDY, required=True)
    _add_ensembles(command)
    command = _add(group, integral, "integral", without=["label_noise"])
    command.typed = {"label_noise": "levels"}
    text = f"The methods, one of them integral. Default: {' '.join(grids.INTEGRAL)}."
    parser.add_recipes(command, nargs="*", help=text)
    command.numbers("--levels", float, LEVELS, STUDY)
    command = _add(group, instability, "instability", without=branches.FIXED)
    text = "The training that is branched; its result is one network. Default: cifar10-standard."
    command.option("recipe", nargs="?", default="cifar10-standard", metavar="RECIPE", help=text)
    command.numbers("--shared", int, "Numbers of epochs that are shared. Default: 0, and 1/32, 1/16, …, 3/4.", STUDY)
    text = "Numbers of networks that are averaged, put together and mixed. Default: 2 5."
    command.numbers("--models", int, text, STUDY)
    text = "Random mixtures of each kind. Default: 5."
    command.option("--draws", panel=STUDY, type=int, metavar="INT", default=5, help=text)


def _add(commands: Any, plan: Planner, out: str, without: Collection[str] = ()) -> Parser:
    """Add a command that plans and runs a comparison or a study, with the options that all of them have."""
    command = parser.add_command(commands, plan)
    command.set_defaults(function=partial(_run, plan))
    command.panel(COMPARISON if plan is compare else STUDY)  # which comes first
    parser.add_seeds(command)
    parser.add_fields(command, Recipe, parser.RECIPE, without=without)
    parser.add_data(command)
    parser.add_fields(command, Execution, parser.EXECUTION)
    parser.add_plan(command)
    text = "The folder for tables and figures."
    parser.add_output(command, Path(out), text, json="everything as one line of JSON instead of tables")
    return command


def _add_ensembles(command: Parser) -> None:
    text = "Also measure ensembles of this many independent standard runs. Default: 2, if there are 2 seeds."
    command.numbers("--ensembles", int, text, COMPARISON)


def _run(plan: Planner, options: argparse.Namespace) -> None:
    """Plan, and run the plan or with --dry-run print it."""
    names = ("data", "runs", "out", "ensembles")
    where = {name: getattr(options, name) for name in names if hasattr(options, name)}
    show = "quiet" if options.quiet or options.json else "bar"
    planned = plan(options, Setting.of(seeds=options.seeds, show=show, **where, **parser.changes(options)))
    if options.dry_run:
        printing.show_plan(planned.recipes, planned.setting.runs)
        return
    made: Result = setting.run(planned)
    if options.json:
        print(json.dumps(made.summary()))
        return
    printing.show_result(made, made.tables(), made.notes())


def compare(options: argparse.Namespace, asked: Setting) -> Plan[Any]:
    """Train and evaluate what is missing of several methods, and print and write one table of them all.

    Accuracy, NLL, ECE, Brier score and costs of every way in which a method answers, and differences that are
    paired by the seed. The same command again continues what was stopped; nothing is trained or measured twice.

    Example: subspaces compare digits-standard digits-line --seeds 0 1 2
    """
    return plan_comparison(options.recipes, asked, options.reference)


def noise(options: argparse.Namespace, asked: Setting) -> Plan[Any]:
    """Compare methods over levels of label noise: accuracy and calibration, one table and one figure.

    Dropout and label smoothing are tried at several rates; the best on held-out images (--validation) is reported.
    The same command again continues what was stopped.

    Example: subspaces study noise cifar10-standard cifar10-line --validation 5000
    """
    rates = {"dropout": options.dropout_rates, "label_smoothing": options.smoothing_rates}
    lists = {name: tried or grids.RATES for name, tried in rates.items()}
    try:
        return grids.plan(options.recipes, asked, options.levels or grids.LEVELS, lists, options.by)
    except ArgumentError as error:
        hint = "; --dropout-rates 0 leaves dropout out of the study" if str(error).startswith("dropout=") else ""
        raise ArgumentError(f"{error}{hint}") from None


def grid(options: argparse.Namespace, asked: Setting) -> Plan[Any]:
    """Compare methods over the values of any field of recipes, such as epochs, beta or vertices.

    Example: subspaces study grid digits-line --over epochs --values 20 60
    """
    return grids.plan(options.recipes, asked, options.values, {}, over=options.over, name=options.over)


def integral(options: argparse.Namespace, asked: Setting) -> Plan[Any]:
    """Compare Integral, whose ensemble of all networks of a line is one network, with others under label noise.

    All methods train with the learning rate 0.02 unless --learning-rate says otherwise: with 0.1 the training of
    Integral breaks down. The same command again continues what was stopped.

    Example: subspaces study integral --data data --seeds 0 1 2
    """
    return grids.plan_integral(options.recipes or grids.INTEGRAL, asked, options.levels or grids.LEVELS)


def instability(options: argparse.Namespace, asked: Setting) -> Plan[Any]:
    """Train networks that share their first epochs, and measure their averages, ensembles and random mixtures.

    The shared epochs are trained once. The same command again continues what was stopped.

    Example: subspaces study instability digits-standard --shared 0 15 45
    """
    return branches.plan(options.recipe, asked, options.shared, options.models or branches.MODELS, options.draws)
