"""`subspaces evaluate`."""

import dataclasses
import math
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, corruption_names, one_of, with_fields
from subspaces.cli.shared import (
    EXECUTION,
    Code,
    Data,
    Quiet,
    RunFolders,
    Trust,
    check_output,
    completing,
    data_names,
    json_option,
    option,
)
from subspaces.errors import ArgumentError
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.files import to_json
from subspaces.evaluation.settings import PLANE_PANEL, POINTS_PANEL, SHIFT_PANEL, Settings
from subspaces.evaluation.settings import POINTS as MOST_POINTS
from subspaces.evaluation.shifted_data import EXTRA, Corruptions
from subspaces.experiments.evaluating import evaluate as runs_evaluation
from subspaces.experiments.evaluating.run_subject import known_data
from subspaces.experiments.training import Execution, Run
from subspaces.reports import table

OWN = ("grid", "through", "corruptions", "outliers")  # which are typed in another way
FIELDS = tuple(entry.name for entry in dataclasses.fields(Settings) if entry.name not in (*OWN, "precision"))
TYPED = {"through": "plane-through", "seed": "corruption-seed"}
DEVICE = ("device", "precision", "workers")


@with_fields(Execution, EXECUTION, only=DEVICE)
@with_fields(Settings, EXECUTION, only=FIELDS)
def evaluate(
    runs: RunFolders,
    grid: Annotated[
        tuple[float, float, float] | None,
        option(
            "Points of a line or curve: --grid 0 1 0.05 is from 0 to 1 in steps of 0.05, as by default. "
            "They may lie off the ends, and each comes with its opposite 1 - alpha.",
            "FROM TO STEP",
            POINTS_PANEL,
        ),
    ] = None,
    plane_through: Annotated[
        list[str] | None,
        option(
            "A plane through the midpoint of another run. Once: with the run's own ends; twice: with its midpoint; or "
            "three times.",
            "RUN",
            PLANE_PANEL,
        ),
    ] = None,
    corruptions: Annotated[
        list[str] | None,
        option(
            "Also measure on corrupted test images: --corruptions fog snow; all for the usual fifteen; or extra, which "
            "adds the four that are kept for validation.",
            "NAME...",
            SHIFT_PANEL,
            callback=one_of(corruption_names()),
            autocompletion=completing(corruption_names),
        ),
    ] = None,
    severities: Annotated[
        list[int] | None, option("How severe, from 1 to 5; by default all: --severities 1 3 5.", "INT...", SHIFT_PANEL)
    ] = None,
    corruption_seed: Annotated[
        int | None, option("Of the noise that is made, and the like; by default 0.", "INT", SHIFT_PANEL)
    ] = None,
    outliers: Annotated[
        list[str] | None,
        option(
            "Also measure how well the test images are told from those of another data set, such as mnist.",
            "NAME...",
            SHIFT_PANEL,
            autocompletion=data_names,
        ),
    ] = None,
    data: Data = ROOT,
    code: Code = None,
    trust: Trust = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, json_option("a line of JSON for each run instead")] = False,
    **fields: Any,
) -> None:
    """Measure finished runs: points, ensembles, calibration, planes.

    The numbers go to evaluation.json in each run's folder.
    The same command again continues what was stopped, and measures nothing twice.

    Example: subspaces evaluate runs/* --plane
    """
    with usage(*FIELDS, *OWN, "severities", "corruption_seed", **TYPED):
        check_output(quiet, as_json)
        execution = Execution(**{name: fields.pop(name) for name in DEVICE})
        execution.resolved()  # which refuses what is not there
        fields["answers"] = fields["answers"] or ()
        fields |= {} if grid is None else {"grid": _steps(*grid)}
        fields["outliers"] = [known_data(each) for each in outliers or ()]
        fields |= {"corruptions": _shifted(corruptions, severities, corruption_seed)}
        settings = Settings(**fields, through=plane_through or (), precision=execution.precision)
    how: dict[str, Any] = {"data": data, "execution": execution, "trust": trust}
    how["command"] = shlex.join(["subspaces", *sys.argv[1:]])
    records = runs_evaluation.evaluate_runs(runs, settings, progress=not (quiet or as_json), **how)
    folders = dict.fromkeys(run.resolve() for run in Run.begun(runs))
    if as_json:
        for folder, record in zip(folders, records, strict=True):
            typer.echo(to_json(_summary(folder, record)))
    else:
        printing.show(table.filled(records))
        for made in (table.shift_table(records), table.outlier_table(records)):
            if made.row_count:
                printing.show(made)


def _shifted(names: list[str] | None, severities: list[int] | None, seed: int | None) -> Corruptions | None:
    """Return the corruptions that are asked for."""
    more = {"severities": severities or None, "seed": seed}
    given = {name: value for name, value in more.items() if value is not None}
    if not names:
        if given:
            name = {"seed": "corruption_seed"}.get(first := next(iter(given)), first)
            raise ArgumentError(f"{name}={given[first]}: expected it with --corruptions all, or some of them")
        return None
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
        "results": [dataclasses.asdict(line) for line in table.lines(record)],
        "shifts": list(table.lines_on(record)),
        "outliers": list(table.lines_on(record, outliers=True)),
    }
