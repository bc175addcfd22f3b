"""`subspaces evaluate`."""

import argparse
import dataclasses
import math
import shlex
import sys
from pathlib import Path
from typing import Any

from subspaces.cli import parser, printing
from subspaces.cli.errors import usage
from subspaces.errors import ArgumentError
from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.files import to_json
from subspaces.evaluation.settings import EXTRA, PLANE_PANEL, POINTS_PANEL, SHIFT_PANEL, Corruptions, Settings
from subspaces.evaluation.settings import POINTS as MOST_POINTS
from subspaces.experiments.evaluating import evaluate as runs_evaluation
from subspaces.experiments.evaluating.run_subject import known_data
from subspaces.experiments.training import Execution, Run
from subspaces.reports import tables

OWN = ("grid", "through", "corruptions", "outliers", "precision")  # options that are not made from the field
FIELDS = tuple(entry.name for entry in dataclasses.fields(Settings) if entry.name not in OWN)
TYPED = {"through": "plane-through", "seed": "corruption-seed"}


def add(commands: Any) -> None:
    """Add the command."""
    command = parser.add_command(commands, evaluate)
    parser.add_runs(command)
    command.option(
        "--grid",
        panel=POINTS_PANEL,
        nargs=3,
        type=float,
        metavar=("FROM", "TO", "STEP"),
        help="Points of a line or curve: --grid 0 1 0.05 is from 0 to 1 in steps of 0.05, as by default. They may lie "
        "off the ends, and each comes with its opposite 1 - alpha.",
    )
    parser.add_fields(command, Settings, parser.EXECUTION, only=FIELDS)
    command.option(
        "--plane-through",
        panel=PLANE_PANEL,
        action="append",
        metavar="RUN",
        help="A plane through the midpoint of another run. Once: with the run's own ends; twice: with its midpoint; or "
        "three times.",
    )
    command.option(
        "--corruptions",
        panel=SHIFT_PANEL,
        nargs="+",
        action="extend",
        type=parser.one_of(("all", EXTRA, *CORRUPTIONS)),
        metavar="NAME",
        help="Also measure on corrupted test images: --corruptions fog snow; all for the usual fifteen; or extra, "
        "which adds the four that are kept for validation.",
    )
    numbers: dict[str, dict[str, str]] = {"severities": {"nargs": "+", "action": "extend"}, "corruption-seed": {}}
    texts = ("Severities, from 1 to 5. Default: all.", "Seed of the noise that is drawn, and the like. Default: 0.")
    for (name, more), text in zip(numbers.items(), texts, strict=True):
        command.option(f"--{name}", panel=SHIFT_PANEL, type=int, metavar="INT", help=text, **more)
    command.option(
        "--outliers",
        panel=SHIFT_PANEL,
        nargs="+",
        action="extend",
        metavar="NAME",
        help="Also measure how well the test images are told from those of other data sets, such as mnist.",
    )
    parser.add_data(command, trust=True)
    parser.add_fields(command, Execution, parser.EXECUTION, only=parser.DEVICE)
    parser.add_output(command, json="a line of JSON for each run instead")


def evaluate(options: argparse.Namespace) -> None:
    """Measure finished runs: points, ensembles, calibration, planes.

    The numbers go to evaluation.json in each run's folder. The same command again continues what was stopped, and
    measures nothing twice.

    Example: subspaces evaluate runs/* --plane
    """
    with usage(*FIELDS, *OWN, "severities", "corruption_seed", **TYPED):
        execution = parser.device_of(options)
        fields = {name: value for name, value in parser.given(options, Settings).items() if name in FIELDS}
        fields |= {} if options.grid is None else {"grid": _steps(*options.grid)}
        fields["outliers"] = [known_data(each) for each in options.outliers or ()]
        fields["corruptions"] = _corruptions(options.corruptions, options.severities, options.corruption_seed)
        settings = Settings(**fields, through=options.plane_through or (), precision=execution.precision)
    records = runs_evaluation.evaluate_runs(
        options.runs,
        settings,
        progress=not (options.quiet or options.json),
        data=options.data,
        execution=execution,
        trust=options.trust,
        command=shlex.join(["subspaces", *sys.argv[1:]]),
    )
    if options.json:
        folders = dict.fromkeys(run.resolve() for run in Run.begun(options.runs))
        for folder, record in zip(folders, records, strict=True):
            print(to_json(_summary(folder, record)))
        return
    printing.show(tables.filled(records))
    for made in (tables.shift_table(records), tables.outlier_table(records)):
        if made.row_count:
            printing.show(made)


def _corruptions(names: list[str] | None, severities: list[int] | None, seed: int | None) -> Corruptions | None:
    """Return the corruptions that are asked for."""
    given = {"severities": severities, "corruption_seed": seed}
    given = {name: value for name, value in given.items() if value is not None}
    if not names:
        for name, value in given.items():
            raise ArgumentError(f"{name}={value}: expected it with --corruptions all, or some of them")
        return None
    if "corruption_seed" in given:
        given["seed"] = given.pop("corruption_seed")
    return Corruptions(names[0] if names in (["all"], [EXTRA]) else names, **given)  # type: ignore[arg-type]


def _steps(first: float, last: float, step: float) -> tuple[float, ...]:
    """Return the numbers from first to last; the last is one of them where a whole number of steps leads to it."""
    given = f"--grid {first:g} {last:g} {step:g}"
    if not (step > 0 and first <= last) or not all(map(math.isfinite, (first, last, step))):
        raise ArgumentError(f"{given}: expected FROM, TO that is not less, and a STEP above 0, all of them finite")
    steps = (last - first) / step  # 0.3 in steps of 0.1 is 2.9999999999999996
    if steps > MOST_POINTS - 1:
        raise ArgumentError(f"{given}: {steps:.3g} steps; expected at most {MOST_POINTS - 1:,}, take a larger STEP")
    count = int(steps + 1e-6)
    ends = last if abs(steps - count) <= 1e-6 else first + count * step
    return (*(first + index * step for index in range(count)), ends)


def _summary(folder: Path, record: Evaluation) -> dict[str, Any]:
    recipe = record.recipe or {}
    return {
        "run": record.name,
        "recipe": recipe["name"],
        "seed": recipe["seed"],
        "folder": str(folder),
        "results": list(tables.lines(record)),
        "shifts": list(tables.lines_on(record)),
        "outliers": list(tables.lines_on(record, outliers=True)),
    }
