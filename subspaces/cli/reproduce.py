"""`subspaces reproduce list | NAME…`: the paper's figures."""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from rich.markup import escape

from subspaces.cli import parser, printing
from subspaces.cli.errors import usage
from subspaces.experiments.paper import SCALES
from subspaces.experiments.paper.making import Reproduced
from subspaces.experiments.paper.reproduce import Reproduction, ReproductionPlan, plan, run
from subspaces.experiments.studies.setting import Setting, states
from subspaces.experiments.training import Execution

LIST = "list"


def add(commands: Any) -> None:
    """Add the command."""
    command = parser.add_command(commands, reproduce)
    text = "Figures of the paper, or all; list, or nothing, says which there are and what is possible here."
    command.add_argument("names", nargs="*", metavar="NAME", help=text)
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
    parser.add_tensorboard(command)


def reproduce(options: argparse.Namespace) -> None:
    """Reproduce figures of the paper: train and measure what is missing, draw them, and judge what the paper claims.

    The plan comes first: runs × epochs. Runs are shared between figures. Each claim holds, does not, or is too noisy to
    say, by its difference over the seeds. The same command again continues what was stopped.

    Example: subspaces reproduce along betas --scale paper --data data
    """
    listing = options.names in ([], [LIST])
    with usage("out", "seeds", "scale", "on"):
        where = {name: getattr(options, name) for name in ("seeds", "data", "runs", "out", "tensorboard")}
        show = "quiet" if options.quiet or options.json else "bar"
        setting = Setting.of(show=show, **where, **parser.given(options, Execution))
        scales = list(SCALES) if listing and options.scale is None else [options.scale or "smoke"]
        plans = [plan("all" if listing else options.names, one, setting, options.on) for one in scales]
    if listing:
        _list(plans, options.json)
        return
    (planned,) = plans
    if options.dry_run or not options.json:
        _show_plan(planned, options.json)
    if not options.dry_run:
        alone = len(planned.plans) == 1
        made = run(planned, (lambda one: None) if options.json else partial(_show, whole=alone))
        if options.json:
            print(json.dumps(made.summary()))
        else:
            _show_all(made)


def _rows(planned: ReproductionPlan) -> list[dict[str, Any]]:
    """Return what every figure takes on each network and data set, and why it is not possible where it is not."""
    found = []
    for one in planned.every:
        about: dict[str, Any] = {"figure": one.figure.name, "where": one.figure.where, "shows": one.figure.shows}
        about |= {"on": one.setup.name, "scale": planned.scale.name, "runs": len(one.recipes), "size": one.size}
        left = sum(state in ("to train", "to continue") for _, state in states(one.recipes, planned.setting.runs))
        found.append({**about, "left": left, "obstacle": one.obstacle})
    return found


def _list(plans: list[ReproductionPlan], as_json: bool) -> None:
    """List all figures, and what is not possible here."""
    rows = [row for planned in plans for row in _rows(planned)]
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    table = printing.table("figure", "in the paper", "shows", names="figure")
    for figure, where, shows in dict.fromkeys((row["figure"], row["where"], row["shows"]) for row in rows):
        table.add_row(*map(escape, (figure, where, shows)))
    printing.show(table)
    printing.echo("`subspaces reproduce NAME --scale SCALE --dry-run` shows what it takes")
    _tell_obstacles(plans)


def _show_plan(planned: ReproductionPlan, as_json: bool) -> None:
    """Print what would be trained, figure by figure, and all together, with every run once."""
    rows = _rows(planned)
    total = sum(state in ("to train", "to continue") for _, state in states(planned.recipes, planned.setting.runs))
    if as_json:
        print(json.dumps({"figures": rows, "total": {"runs": len(planned.recipes), "left": total}}))
        return
    numbers = ("runs × epochs", "to train")
    table = printing.table("figure", "in the paper", "on", *numbers, names="figure", numbers=numbers)
    for row in rows:
        left = "not here" if row["obstacle"] else str(row["left"])
        table.add_row(*map(escape, (row["figure"], row["where"], row["on"], row["size"], left)))
    table.add_section()
    table.add_row("all, each run once", "", "", str(len(planned.recipes)), str(total))
    printing.show(table)
    _tell_obstacles([planned])


def _tell_obstacles(plans: list[ReproductionPlan]) -> None:
    """Say once for each network and data set what is missing."""
    found = {setup: reason for planned in plans for setup, reason in planned.obstacles.items()}
    for setup, reason in found.items():
        printing.echo(f"not possible here, on {setup}: {reason}")


def _show(made: Reproduced, whole: bool) -> None:
    """Show a figure as soon as it is made: its claims, and if it is the only one the tables that they stand on."""
    for table in made.tables() if whole else made.tables()[:1]:
        printing.show_table(table)
    printing.echo(f"wrote {', '.join(map(str, made.files))}")
    for reason in made.left_out:
        printing.echo(reason, err=True)


def _show_all(made: Reproduction) -> None:
    """Show all claims, where there are several figures, and how to read them."""
    if len(made.figures) > 1:
        printing.show_table(made.tables()[0])
    for note in made.notes():
        printing.echo(f"- {note}")
    printing.echo(f"wrote {', '.join(map(str, made.files))}")
