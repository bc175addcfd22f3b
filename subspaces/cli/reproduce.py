"""`subspaces reproduce list | NAME…`: the paper's figures."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from subspaces.cli import printing, shared
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, with_fields
from subspaces.cli.shared import completing, option
from subspaces.experiments.training import Execution

if TYPE_CHECKING:
    from subspaces.experiments.paper import Reproduced, Reproduction
    from subspaces.experiments.paper.reproduce import ReproductionPlan

LIST = "list"


def _names() -> list[str]:
    from subspaces.experiments.paper import FIGURES

    return [LIST, "all", *FIGURES]


def _scales() -> list[str]:
    from subspaces.experiments.paper import SCALES

    return list(SCALES)


@with_fields(Execution, shared.EXECUTION)
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Figures of the paper, or all; list, or nothing, says which there are and what is possible here.",
            show_default=False,
            autocompletion=completing(_names),
        ),
    ] = None,
    scale: Annotated[
        str | None,
        option(
            "smoke: a small network on digits, minutes on a CPU; paper: the paper's own networks, data and epochs.",
            "NAME",
            default="smoke",
            autocompletion=completing(_scales),
        ),
    ] = None,
    on: Annotated[
        list[str] | None, option("Only on this network and its data, such as cifar10; repeat it for several.", "NAME")
    ] = None,
    seeds: Annotated[
        list[int] | None, option("Train everything once for each of these seeds.", "INT...", default="0 1 2")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the plan: runs × epochs.", rich_help_panel=shared.OUTPUT)
    ] = False,
    data: shared.Data = ROOT,
    runs: Annotated[
        Path, option("The folder with the runs; finished ones are not trained again.", "DIR", shared.OUTPUT, True)
    ] = Path("runs"),
    out: Annotated[Path, shared.out_option("The folder for tables, pictures and claims.", "DIR")] = Path("reproduced"),
    quiet: shared.Quiet = False,
    as_json: Annotated[bool, shared.json_option("everything as one line of JSON instead of tables")] = False,
    tensorboard: shared.TensorBoard = True,
    **fields: Any,
) -> None:
    """Reproduce figures of the paper: train and measure what is missing, draw them, and judge what the paper claims.

    The plan comes first: runs × epochs. Runs are shared between figures. Each claim holds, does not, or is too noisy to
    say, by its difference over the seeds. The same command again continues what was stopped.

    Example: subspaces reproduce along betas --scale paper --data data
    """
    from subspaces.experiments.paper.reproduce import plan, run
    from subspaces.experiments.studies.setting import Setting

    with usage("out", "seeds", "scale", "on"):
        shared.check_output(quiet, as_json)
        show = "quiet" if quiet or as_json else "bar"
        where: dict[str, Any] = {"data": data, "runs": runs, "out": out, "show": show, "tensorboard": tensorboard}
        setting = Setting.of(seeds=seeds or None, **where, **fields)
        listing = names in (None, [], [LIST])
        scales = _scales() if listing and scale is None else ["smoke" if scale is None else scale]
        plans = [plan("all" if listing else names or (), one, setting, on or None) for one in scales]
    if listing:
        _list(plans, as_json)
        return
    (planned,) = plans
    if dry_run or not as_json:
        _show_plan(planned, as_json)
    if not dry_run:
        alone = len(planned.plans) == 1
        made = run(planned, lambda one: None if as_json else _show(one, alone))
        if as_json:
            typer.echo(json.dumps(made.summary()))
        else:
            _show_all(made)


def _rows(planned: "ReproductionPlan") -> list[dict[str, Any]]:
    """Return what every figure takes on each network and data set, and why it is not possible where it is not."""
    from subspaces.experiments.studies.setting import states

    found = []
    for one in planned.every:
        about: dict[str, Any] = {"figure": one.figure.name, "where": one.figure.where, "shows": one.figure.shows}
        about |= {"on": one.setup.name, "scale": planned.scale.name, "runs": len(one.recipes), "size": one.size}
        left = sum(state in ("to train", "to continue") for _, state in states(one.recipes, planned.setting.runs))
        found.append({**about, "left": left, "obstacle": one.obstacle})
    return found


def _list(plans: "list[ReproductionPlan]", as_json: bool) -> None:
    """List all figures, and what is not possible here."""
    rows = [row for planned in plans for row in _rows(planned)]
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
        return
    table = printing.table("figure", "in the paper", "shows", names="figure")
    for figure, where, shows in dict.fromkeys((row["figure"], row["where"], row["shows"]) for row in rows):
        table.add_row(*map(escape, (figure, where, shows)))
    printing.show(table)
    printing.echo("`subspaces reproduce NAME --scale SCALE --dry-run` shows what it takes")
    _tell_obstacles(plans)


def _show_plan(planned: "ReproductionPlan", as_json: bool) -> None:
    """Print what would be trained, figure by figure, and all together, with every run once."""
    from subspaces.experiments.studies.setting import states

    rows = _rows(planned)
    total = sum(state in ("to train", "to continue") for _, state in states(planned.recipes, planned.setting.runs))
    if as_json:
        typer.echo(json.dumps({"figures": rows, "total": {"runs": len(planned.recipes), "left": total}}))
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


def _tell_obstacles(plans: "list[ReproductionPlan]") -> None:
    """Say once for each network and data set what is missing."""
    found = {setup: reason for planned in plans for setup, reason in planned.obstacles.items()}
    for setup, reason in found.items():
        printing.echo(f"not possible here, on {setup}: {reason}")


def _show(made: "Reproduced", whole: bool) -> None:
    """Show a figure as soon as it is made: its claims, and if it is the only one the tables that they stand on."""
    for table in made.tables() if whole else made.tables()[:1]:
        printing.show_table(table)
    printing.echo(f"wrote {', '.join(map(str, made.files))}")
    for reason in made.left_out:
        printing.echo(reason, err=True)


def _show_all(made: "Reproduction") -> None:
    """Show all claims, where there are several figures, and how to read them."""
    if len(made.figures) > 1:
        printing.show_table(made.tables()[0])
    for note in made.notes():
        printing.echo(f"- {note}")
    printing.echo(f"wrote {', '.join(map(str, made.files))}")
