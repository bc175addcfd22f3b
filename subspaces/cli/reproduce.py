"""`subspaces reproduce list | NAME…`: the paper's figures."""

import argparse
import json
from pathlib import Path
from typing import Any

from subspaces.cli import parser, printing
from subspaces.experiments.paper import FIGURES, SCALES
from subspaces.experiments.paper.reproduce import Reproduced, ReproductionPlan, plan, run
from subspaces.experiments.studies.setting import Setting, states
from subspaces.experiments.training import Execution, Recipe


def add(commands: Any) -> None:
    """Add the command."""
    command = parser.add_command(commands, reproduce)
    command.typed = {"seed": "seeds"}
    text = "Figures of the paper, or all; list, or nothing, says which there are and what is possible here."
    command.option("names", nargs="*", metavar="NAME", help=text)
    text = f"{'; '.join(f'{each.name}: {each.meaning}' for each in SCALES.values())}. Default: smoke."
    command.option("--scale", metavar="NAME", help=text)
    text = "Only on these networks and their data, such as cifar10."
    command.option("--on", nargs="+", action="extend", metavar="NAME", help=text)
    parser.add_seeds(command, "Train everything once for each of these seeds. Default: 0 1 2.")
    parser.add_data(command, code=False)
    parser.add_fields(command, Execution, parser.EXECUTION)
    parser.add_plan(command)
    text = "The folder for tables, pictures and claims."
    parser.add_output(command, Path("reproduced"), text, json="everything as one line of JSON instead of tables")


def reproduce(options: argparse.Namespace) -> None:
    """Reproduce figures of the paper: train and measure what is missing, draw them, and judge what the paper claims.

    The plan comes first: runs × epochs. Runs are shared between figures. Each claim holds, does not, or is too noisy to
    say, by its difference over the seeds. The same command again continues what was stopped.

    Example: subspaces reproduce along betas --scale paper --data data
    """
    listing = options.names in ([], ["list"])
    where = {name: getattr(options, name) for name in ("seeds", "data", "runs", "out")}
    show = "quiet" if options.quiet or options.json else "bar"
    setting = Setting.of(show=show, **where, **parser.given(options, Execution))
    scales = list(SCALES) if listing and options.scale is None else [options.scale or "smoke"]
    plans = [plan("all" if listing else options.names, one, setting, options.on) for one in scales]
    if listing:
        _list(plans)
        return
    (planned,) = plans
    if options.dry_run or not options.json:
        _show_plan(planned, options.dry_run)
    if options.dry_run:
        return

    def show_figure(one: Reproduced) -> None:
        """Show a figure as soon as it is made: its claims, and if it is the only one the tables they stand on."""
        if not options.json:
            printing.show_result(one, one.tables() if len(planned.plans) == 1 else one.tables()[:1])

    made = run(planned, show_figure)
    if options.json:
        print(json.dumps(made.summary()))
    else:
        printing.show_result(made, made.tables() if len(made.figures) > 1 else [], made.notes())


def _list(plans: list[ReproductionPlan]) -> None:
    """List all figures, and what is not possible here."""
    table = printing.table("figure", "in the paper", "shows", names="figure")
    for figure in dict.fromkeys(one.figure.name for planned in plans for one in planned.every):
        printing.add_row(table, figure, FIGURES[figure].where, FIGURES[figure].shows)
    printing.show(table)
    printing.echo("`subspaces reproduce NAME --scale SCALE --dry-run` shows what it takes")
    _tell_obstacles(plans)


def _show_plan(planned: ReproductionPlan, dry: bool) -> None:
    """Print what would be trained, figure by figure, and all together, with every run once."""

    def left(recipes: list[Recipe]) -> int:
        return sum(state in ("to train", "to continue") for _, state in states(recipes, planned.setting.runs))

    numbers, caption = ("runs × epochs", "to train"), "nothing was done" if dry else ""
    table = printing.table("figure", "in the paper", "on", *numbers, caption=caption, names="figure", numbers=numbers)
    for one in planned.every:
        missing = "not here" if one.obstacle else left(one.recipes)
        printing.add_row(table, one.figure.name, one.figure.where, one.setup.name, one.size, missing)
    table.add_section()
    printing.add_row(table, "all, each run once", "", "", len(planned.recipes), left(planned.recipes))
    printing.show(table)
    _tell_obstacles([planned])


def _tell_obstacles(plans: list[ReproductionPlan]) -> None:
    """Say once for each network and data set what is missing."""
    found = {setup: reason for planned in plans for setup, reason in planned.obstacles.items()}
    for setup, reason in found.items():
        printing.echo(f"not possible here, on {setup}: {reason}")
