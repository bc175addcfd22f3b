"""`subspaces compare` and `subspaces study noise | grid | integral | instability`: many runs, one table."""

import argparse
import json
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from subspaces.cli import parser, printing
from subspaces.cli.errors import usage
from subspaces.cli.parser import Parser
from subspaces.errors import ArgumentError
from subspaces.evaluation.settings import PASSES
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
OWN = (  # options that errors may begin with, beside the fields of recipes and of their execution
    *("out", "seeds", "recipe", "reference", "ensembles", "dropout_passes", "levels", "values", "over", "by"),
    *("shared", "models", "draws"),
)
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
    parser.add_recipes(command)
    _add_numbers(command, "--levels", float, LEVELS)
    _add_choice(command)
    command = _add(group, grid, "grid")
    parser.add_recipes(command)
    command.option("--over", panel=STUDY, metavar="NAME", required=True, help="The field of recipes that is varied.")
    _add_numbers(command, "--values", float, "Its values.", required=True)
    _add_choice(command)
    command = _add(group, integral, "integral", without=["label_noise"])
    text = f"The methods, one of them integral. Default: {' '.join(grids.INTEGRAL)}."
    parser.add_recipes(command, nargs="*", help=text)
    _add_numbers(command, "--levels", float, LEVELS)
    command = _add(group, instability, "instability", without=branches.FIXED)
    text = "The training that is branched; its result is one network. Default: cifar10-standard."
    command.add_argument("recipe", nargs="?", default="cifar10-standard", metavar="RECIPE", help=text)
    text = "Numbers of epochs that are shared. Default: 0, and 1/32, 1/16, …, 3/4 of all."
    _add_numbers(command, "--shared", int, text)
    text = "Numbers of networks that are averaged, put together and mixed. Default: 2 5."
    _add_numbers(command, "--models", int, text)
    text = "Random mixtures of each kind. Default: 5."
    command.option("--draws", panel=STUDY, type=int, metavar="INT", default=5, help=text)


def _add(commands: Any, plan: Planner, out: str, without: Collection[str] = ()) -> Parser:
    """Add a command that plans and runs a comparison or a study, with the options that all of them have."""
    command = parser.add_command(commands, plan)
    command.set_defaults(function=partial(_run, plan))
    parser.add_seeds(command)
    parser.add_fields(command, Recipe, parser.RECIPE, without=without)
    parser.add_data(command)
    parser.add_fields(command, Execution, parser.EXECUTION)
    parser.add_plan(command)
    text = "The folder for tables and figures."
    parser.add_output(command, Path(out), text, json="everything as one line of JSON instead of tables")
    parser.add_tensorboard(command)
    return command


def _add_numbers(command: Parser, name: str, type_: type, text: str, **settings: Any) -> None:
    command.option(
        name, panel=STUDY, nargs="+", action="extend", type=type_, metavar=type_.__name__.upper(), help=text, **settings
    )


def _add_ensembles(command: Parser) -> None:
    text = "Also measure ensembles of this many independent standard runs. Default: 2, if there are 2 seeds."
    command.option("--ensembles", panel=COMPARISON, nargs="+", action="extend", type=int, metavar="INT", help=text)
    text = f"Passes of MC-dropout for a network with dropout. Default: {PASSES}."
    command.option("--dropout-passes", panel=COMPARISON, type=int, metavar="INT", default=PASSES, help=text)


def _add_choice(command: Parser) -> None:
    _add_numbers(command, "--dropout-rates", float, RATES.format("dropout"))
    _add_numbers(command, "--smoothing-rates", float, RATES.format("label smoothing"))
    text = "The metric that chooses among them, on held-out images. Default: accuracy."
    command.option("--by", panel=STUDY, metavar="NAME", default="accuracy", help=text)
    _add_ensembles(command)


def _run(plan: Planner, options: argparse.Namespace) -> None:
    """Plan, and run the plan or with --dry-run print it."""
    with usage(*OWN):
        where = {name: getattr(options, name) for name in ("data", "runs", "out", "tensorboard")}
        where |= {name: getattr(options, name) for name in ("ensembles", "dropout_passes") if hasattr(options, name)}
        show = "quiet" if options.quiet or options.json else "bar"
        planned = plan(options, Setting.of(seeds=options.seeds, show=show, **where, **parser.changes(options)))
    if options.dry_run:
        printing.show_plan(planned.recipes, planned.setting.runs, options.json)
        return
    made: Result = setting.run(planned)
    if options.json:
        print(json.dumps(made.summary()))
        return
    for table in made.tables():
        printing.show_table(table)
    for note in made.notes():
        printing.echo(f"- {note}")
    printing.echo(f"wrote {', '.join(map(str, made.files))}")
    for reason in made.left_out:
        printing.echo(reason, err=True)


def compare(options: argparse.Namespace, asked: Setting) -> Plan[Any]:
    """Train and evaluate what is missing of several methods, and print and write one table of them all.

    Accuracy, NLL, ECE, Brier score and costs of every way in which a method answers, and differences that are
    paired by the seed. The same command again continues what was stopped; nothing is trained or measured twice.

    Example: subspaces compare digits-standard digits-line digits-simplex --seeds 0 1 2 -o comparison
    """
    return plan_comparison(options.recipes, asked, options.reference)


def noise(options: argparse.Namespace, asked: Setting) -> Plan[Any]:
    """Compare methods over levels of label noise: accuracy and calibration, one table and one figure.

    Dropout and label smoothing are tried at several rates; the best on held-out images (--validation) is reported.
    The same command again continues what was stopped.

    Example: subspaces study noise cifar10-standard cifar10-simplex --validation 5000 --seeds 0 1 -o noise
    """
    return _planned(options, asked, options.levels or grids.LEVELS, grids.RATES)


def grid(options: argparse.Namespace, asked: Setting) -> Plan[Any]:
    """Compare methods over the values of any field of recipes, such as epochs, beta or vertices.

    Example: subspaces study grid digits-standard digits-line --over epochs --values 20 60 --seeds 0 1
    """
    return _planned(options, asked, options.values, (), over=options.over, name=options.over)


def _planned(options: argparse.Namespace, asked: Setting, values: Any, rates: Any, **about: Any) -> Plan[Any]:
    lists = {"dropout": options.dropout_rates or rates, "label_smoothing": options.smoothing_rates or rates}
    lists = {name: tried for name, tried in lists.items() if tried}
    try:
        return grids.plan(options.recipes, asked, values, lists, options.by, **about)
    except ArgumentError as error:
        hint = "; --dropout-rates 0 leaves dropout out of the study" if str(error).startswith("dropout=") else ""
        raise ArgumentError(f"{error}{hint}") from None


def integral(options: argparse.Namespace, asked: Setting) -> Plan[Any]:
    """Compare Integral, whose ensemble of all networks of a line is one network, with others under label noise.

    All methods train with the learning rate 0.02 unless --learning-rate says otherwise: with 0.1 the training of
    Integral breaks down. The same command again continues what was stopped.

    Example: subspaces study integral --data data --seeds 0 1 2 -o integral
    """
    return grids.plan_integral(options.recipes or grids.INTEGRAL, asked, options.levels or grids.LEVELS)


def instability(options: argparse.Namespace, asked: Setting) -> Plan[Any]:
    """Train networks that share their first epochs, and measure their averages, ensembles and random mixtures.

    The shared epochs are trained once. The same command again continues what was stopped.

    Example: subspaces study instability digits-standard --shared 0 4 15 30 45 --seeds 0 1 -o instability
    """
    return branches.plan(options.recipe, asked, options.shared, options.models or branches.MODELS, options.draws)
