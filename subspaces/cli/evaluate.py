"""`subspaces evaluate`."""

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT, with_fields
from subspaces.cli.shared import EXECUTION, Code, Data, Quiet, RunFolders, check_output, json_option, option
from subspaces.evaluation.record import Alpha, Choice, Record, Row
from subspaces.evaluation.settings import PLANE_PANEL, POINTS_PANEL, Settings
from subspaces.evaluation.settings import POINTS as MOST_POINTS
from subspaces.report.answers import PAIR
from subspaces.training import Execution, Recipe, Run

OWN = ("grid", "through")  # which are typed in another way
FIELDS = tuple(entry.name for entry in dataclasses.fields(Settings) if entry.name not in (*OWN, "precision"))
DEVICE = ("device", "precision", "workers")
REPORTED = "test"


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
            "A plane through a network of another run: its midpoint, or the point named after a colon "
            "(RUN:0.3, RUN:0.2,0.3,0.5). Once: with the run's own ends; twice: with its midpoint; or three times.",
            "RUN[:ALPHA]",
            PLANE_PANEL,
        ),
    ] = None,
    data: Data = ROOT,
    code: Code = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Also run the code of a network (package.module:factory) that a run of somebody else's names.",
            rich_help_panel=EXECUTION,
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: Annotated[bool, json_option("a line of JSON for each run instead")] = False,
    **fields: Any,
) -> None:
    """Measure finished runs: points, ensembles, calibration, planes.

    The numbers go to evaluation.json in each run's folder.
    The same command again continues what was stopped, and measures nothing twice.

    Example: subspaces evaluate runs/* --plane
    """
    with usage(*FIELDS, *OWN, through="plane-through"):
        check_output(quiet, as_json)
        device = {name: fields.pop(name) for name in DEVICE}
        settings = {**fields, "through": tuple(plane_through or ()), "precision": device["precision"]}
        settings["check_statistics"] = tuple(fields["check_statistics"] or ())
        if grid is not None:
            settings["grid"] = _steps(*grid)
        Settings(**settings)  # which refuse what cannot be measured
        Execution(**device).resolved()
    from subspaces import evaluation

    progress = not (quiet or as_json)
    records = evaluation.evaluate(runs, progress=progress, data=data, trust=trust, **{**settings, **device})
    folders = dict.fromkeys(run.resolve() for run in Run.begun(runs))
    if as_json:
        for folder, record in zip(folders, records, strict=True):
            typer.echo(json.dumps(_summary(folder, record)))
    else:
        _show(records)


def _steps(first: float, last: float, step: float) -> tuple[float, ...]:
    """Return the numbers from first to last; the last is one of them where a whole number of steps leads to it."""
    given = f"--grid {first:g} {last:g} {step:g}"
    if not (step > 0 and first <= last) or not all(map(math.isfinite, (first, last, step))):
        raise ValueError(f"{given}: expected FROM, TO that is not less, and a STEP above 0, all of them finite")
    steps = (last - first) / step  # 0.3 in steps of 0.1 is 2.9999999999999996
    if steps > MOST_POINTS - 1:
        raise ValueError(f"{given}: {steps:.3g} steps; expected at most {MOST_POINTS - 1:,}, take a larger STEP")
    count = int(steps + 1e-6)
    ends = last if abs(steps - count) <= 1e-6 else first + count * step
    return (*(first + index * step for index in range(count)), ends)


@dataclass(frozen=True)
class Line:
    """One line of the table: what answers, on which split it was chosen if it was, and how good it is."""

    what: str
    chosen_on: str | None
    on_test: bool
    metrics: dict[str, float]


def _lines(record: Record) -> Iterator[Line]:
    """Yield what a reader asks for first: the method's own answers, fixed beforehand, and what was chosen."""
    recipe = Recipe.from_dict(record.recipe)
    rows = [row for row in record.rows if row.split == REPORTED]
    center = recipe.definition.middle()
    for answer in recipe.answers:
        row = _fixed(rows, answer)
        if row is not None:
            words = {"vertices": f"{len(row.alphas)} {recipe.definition.members}"}
            words["random"] = f"{len(row.alphas)} random points"
            what = center if answer == "midpoint" else f"ensemble of {words.get(answer) or _named(row.alphas)}"
            yield Line(what, None, False, row.metrics)
    for choice in record.choices:
        yield Line(_chosen(choice, center), choice.chosen_on, choice.on_test, choice.reported[REPORTED])


def _fixed(rows: Sequence[Row], answer: str) -> Row | None:
    """Return the row of an answer, if it was measured."""
    if answer == "midpoint":
        return next(row for row in rows if row.kind == "point" and row.role == "midpoint")
    ensembles = [row for row in rows if row.average == "probabilities"]
    along = [row for row in ensembles if row.role == "along"]
    if answer == "pair" or (answer == "vertices" and along):  # the vertices of a line are its ends
        wanted = PAIR if answer == "pair" else 0.0
        nearest = min(along, key=partial(_far, to=wanted), default=None)
        return nearest if nearest is None or answer == "pair" or _far(nearest, wanted) < 1e-9 else None
    roles = {"vertices": "vertex", "random": "random"}
    return next((row for row in ensembles if row.role == roles.get(answer)), None)


def _far(row: Row, to: float) -> float:
    return abs(min(alpha for alpha in row.alphas if not isinstance(alpha, list)) - to)


def _chosen(choice: Choice, center: str) -> str:
    """Return in words what was chosen; a threshold is for the midpoint."""
    if choice.what == "threshold":
        coverage = choice.reported[REPORTED]["coverage"]
        return f"{center} where its confidence is at least {choice.value:.3f}: answers {coverage:.1%}"
    by = {"nll": "NLL"}.get(choice.by, choice.by)
    return f"best {choice.what} by {by}: {_named(choice.value if choice.what == 'pair' else [choice.value])}"


def _named(alphas: Sequence[Alpha]) -> str:
    return " and ".join(f"{a:g}" if isinstance(a, float) else f"({', '.join(f'{x:.3g}' for x in a)})" for a in alphas)


def _show(records: Sequence[Record]) -> None:
    """Print the lines of each run."""
    numbers = ("accuracy %", "NLL", "ECE %", "Brier")
    caption = "on the test set, mean of probabilities; * chosen on the very images it is reported on"
    table = printing.table("run", "what", "chosen on", *numbers, caption=caption, names="run", numbers=numbers)
    for record in records:
        name = record.run
        for line in _lines(record):
            chosen = f"{line.chosen_on}{' *' if line.on_test else ''}" if line.chosen_on else "–"
            table.add_row(escape(name), escape(line.what), chosen, *_numbers(line.metrics))
            name = ""
    printing.show(table)


def _numbers(metrics: dict[str, float]) -> list[str]:
    if "risk" in metrics:
        return [f"{100 * (1 - metrics['risk']):.2f}", "–", "–", "–"]
    percent = [f"{100 * metrics[name]:.2f}" for name in ("accuracy", "ece")]
    return [percent[0], f"{metrics['nll']:.4f}", percent[1], f"{metrics['brier']:.4f}"]


def _summary(folder: Path, record: Record) -> dict[str, Any]:
    recipe = record.recipe
    return {
        "run": record.run,
        "recipe": recipe["name"],
        "seed": recipe["seed"],
        "folder": str(folder),
        "results": [dataclasses.asdict(line) for line in _lines(record)],
    }
