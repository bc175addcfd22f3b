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
    from subspaces.experiments.studies.catalogue import Plan, Reproduced
    from subspaces.experiments.studies.catalogue.costs import Estimates
    from subspaces.experiments.studies.reproduce import Program, Reproduction

LIST = "list"
UNITS = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))
ESTIMATE = "times are estimates: a few steps of each network were timed on this device"


def _names() -> list[str]:
    from subspaces.experiments.studies.catalogue import EXHIBITS

    return [LIST, "all", *EXHIBITS]


def _scales() -> list[str]:
    from subspaces.experiments.studies.catalogue import SCALES

    return list(SCALES)


@with_fields(Execution, shared.EXECUTION)
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Exhibits of the paper, or all; list, or nothing, says which there are and what is possible here.",
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
        bool, typer.Option("--dry-run", help="Only show the plan and what it costs.", rich_help_panel=shared.OUTPUT)
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

    The plan and its cost come first. Runs are shared between figures. Each claim holds, does not, or is too noisy to
    say, by its difference over the seeds. The same command again continues what was stopped.

    Example: subspaces reproduce along betas --scale paper --data data
    """
    from subspaces.experiments.studies.catalogue.costs import Estimates
    from subspaces.experiments.studies.reproduce import plan, run
    from subspaces.experiments.studies.setting import Setting

    with usage("out", "seeds", "scale", "on"):
        shared.check_output(quiet, as_json)
        show = "quiet" if quiet or as_json else "bar"
        where: dict[str, Any] = {"data": data, "runs": runs, "out": out, "show": show, "tensorboard": tensorboard}
        setting = Setting.of(seeds=seeds or None, **where, **fields)
        listing = names in (None, [], [LIST])
        scales = _scales() if listing and scale is None else ["smoke" if scale is None else scale]
        programs = [plan("all" if listing else names or (), one, setting, on or None) for one in scales]
    estimates = Estimates(data, programs[0].setting.execution)
    if listing:
        _list(programs, estimates, as_json)
        return
    (program,) = programs
    if dry_run or not as_json:
        _show_plan(program, estimates, dry_run, as_json)
    if not dry_run:
        alone = len(program.plans) == 1
        made = run(program, lambda one: None if as_json else _show(one, alone))
        if as_json:
            typer.echo(json.dumps(made.summary()))
        else:
            _show_all(made)


def lasting(seconds: float | None) -> str:
    """Return a time as one would say it; what is not known is a dash."""
    if seconds is None:
        return "–"
    size, word = next(((size, word) for size, word in UNITS if seconds >= 2 * size), UNITS[-1])
    return f"{seconds / size:,.0f} {word}"


def _rows(program: "Program", estimates: "Estimates") -> list[dict[str, Any]]:
    """Return what every exhibit takes on each bench, and why it is not possible where it is not."""
    planned: list[tuple[Plan, str | None]] = [(plan, None) for plan in program.plans]
    found = []
    for plan, reason in [*planned, *program.obstacles]:
        exhibit = plan.exhibit
        about: dict[str, Any] = {
            "exhibit": exhibit.name,
            "where": exhibit.where,
            "shows": exhibit.shows,
            "on": plan.bench.name,
        }
        about |= {"scale": program.scale.name, "obstacle": reason}
        found.append(about | vars(estimates.cost([plan])))
    return found


def _list(programs: "list[Program]", estimates: "Estimates", as_json: bool) -> None:
    """List all exhibits, with what is possible here."""
    rows = [row for program in programs for row in _rows(program, estimates)]
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
        return
    numbers = ("runs", "to train", "network-steps", "time left")
    columns = ("exhibit", "in the paper", "shows", "scale", "on", *numbers, "here")
    caption = f"`subspaces reproduce NAME --scale SCALE` makes one; {ESTIMATE}"
    table = printing.table(*columns, caption=caption, names="exhibit", numbers=numbers)
    for name in dict.fromkeys(row["exhibit"] for row in rows):
        for place, row in enumerate(each for each in rows if each["exhibit"] == name):
            about = ("", "", "") if place else (name, row["where"], row["shows"])
            here = "no" if row["obstacle"] else "trained" if not row["left"] else "possible"
            table.add_row(*map(escape, (*about, row["scale"], row["on"])), *_costs(row), here)
    printing.show(table)
    _tell_obstacles(programs)


def _show_plan(program: "Program", estimates: "Estimates", dry: bool, as_json: bool) -> None:
    """Print what would be trained and measured, exhibit by exhibit, and all together, with every run once."""
    rows, total = _rows(program, estimates), vars(estimates.cost(program.plans))
    if as_json:
        typer.echo(json.dumps({"exhibits": rows, "total": total}))
        return
    numbers = ("runs", "to train", "network-steps", "time left")
    caption = f"{ESTIMATE}{'; nothing was done' if dry else ''}"
    table = printing.table("exhibit", "in the paper", "on", *numbers, caption=caption, names="exhibit", numbers=numbers)
    for row in (row for row in rows if not row["obstacle"]):
        table.add_row(*map(escape, (row["exhibit"], row["where"], row["on"])), *_costs(row))
    table.add_section()
    table.add_row("all, each run once", "", "", *_costs(total))
    printing.show(table)
    _tell_obstacles([program])


def _costs(row: dict[str, Any]) -> tuple[str, str, str, str]:
    return str(row["runs"]), str(row["left"]), f"{row['steps']:,.0f}", lasting(row["seconds"])


def _tell_obstacles(programs: "list[Program]") -> None:
    """Say once for each bench what is missing."""
    found = {each.plan.bench.name: each.reason for program in programs for each in program.obstacles}
    for bench, reason in found.items():
        printing.echo(f"not possible here, on {bench}: {reason}")


def _show(made: "Reproduced", whole: bool) -> None:
    """Show an exhibit as soon as it is made: its claims, and if it is the only one the tables that they stand on."""
    for table in made.tables() if whole else made.tables()[:1]:
        printing.show_table(table)
    printing.echo(f"wrote {', '.join(map(str, made.files))}")
    for reason in made.left_out:
        printing.echo(reason, err=True)


def _show_all(made: "Reproduction") -> None:
    """Show all claims, where there are several exhibits, and how to read them."""
    if len(made.exhibits) > 1:
        printing.show_table(made.tables()[0])
    for note in made.notes():
        printing.echo(f"- {note}")
    printing.echo(f"wrote {', '.join(map(str, made.files))}")
