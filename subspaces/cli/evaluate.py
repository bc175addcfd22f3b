"""`subspaces evaluate` and `subspaces select`: finished runs are measured, and a point is chosen."""

import argparse
import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from subspaces import api
from subspaces.cli import parser, printing
from subspaces.core.selection import shown
from subspaces.errors import ArgumentError
from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.files import to_json
from subspaces.evaluation.settings import EXTRA, PLANE_PANEL, SHIFT_PANEL, Corruptions, Settings
from subspaces.experiments.evaluating import evaluate as runs_evaluation
from subspaces.experiments.evaluating import selection as run_selection
from subspaces.experiments.evaluating.selection import RunSelection
from subspaces.experiments.training import Execution, Run
from subspaces.export.exporting import check_target
from subspaces.reports import tables

DOMAIN = "domain: the images to choose for"
CHOICE = "choice"
OWN = ("through", "corruptions", "outliers", "precision")  # options that are not made from the field
FIELDS = tuple(entry.name for entry in dataclasses.fields(Settings) if entry.name not in OWN)


def add(commands: Any) -> None:
    """Add the commands."""
    _add_evaluate(commands)
    _add_select(commands)


def _add_evaluate(commands: Any) -> None:
    command = parser.add_command(commands, evaluate)
    command.typed = {"through": "plane-through", "seed": "corruption-seed"}
    parser.add_runs(command)
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
    command.numbers("--severities", int, "Severities, from 1 to 5. Default: all.", SHIFT_PANEL)
    text = "Seed of the noise that is drawn, and the like. Default: 0."
    command.option("--corruption-seed", panel=SHIFT_PANEL, type=int, metavar="INT", help=text)
    parser.add_data(command, trust=True)
    parser.add_fields(command, Execution, parser.EXECUTION, only=parser.DEVICE)
    parser.add_output(command, json="a line of JSON for each run instead")


def _add_select(commands: Any) -> None:
    command = parser.add_command(commands, select)
    command.typed = {"path": "out", "batches": "statistics-batches"}
    command.option("run", type=Path, metavar="RUN", help="The folder of a finished run.")
    text = f"Corrupt the run's test images, as ImageNet-C does: {', '.join(CORRUPTIONS)}."
    command.option("--corruption", panel=DOMAIN, metavar="NAME", required=True, help=text)
    command.option("--severity", panel=DOMAIN, type=int, metavar="INT", default=3, help="From 1 to 5. Default: 3.")
    for name, default, text in (
        ("examples", 100, "Number of examples to select on, drawn at random; the others are measured."),
        ("statistics-batches", 100, "Training batches for the batch-norm statistics of a point."),
        ("seed", 0, "Seed of the examples that are drawn."),
    ):
        shown = f"{text} Default: {default}."
        command.option(f"--{name}", panel=CHOICE, type=int, metavar="INT", default=default, help=shown)
    text = "nll, accuracy, or entropy, which looks at no labels. Default: nll."
    command.option("--by", panel=CHOICE, metavar="NAME", default="nll", help=text)
    text = "One point for the network, or one for each layer. Default: network."
    command.option("--per", panel=CHOICE, metavar="network|layer", default="network", help=text)
    parser.add_data(command, trust=True)
    parser.add_fields(command, Execution, parser.EXECUTION, only=parser.DEVICE)
    text = "Also export the chosen network: FILE.safetensors, .pt2 or .onnx, with a card."
    parser.add_output(command, None, text, "FILE", json="a line of JSON instead", quiet=False)


def evaluate(options: argparse.Namespace) -> None:
    """Measure finished runs: points, ensembles, calibration, planes.

    The numbers go to evaluation.json in each run's folder. The same command again continues what was stopped, and
    measures nothing twice.

    Example: subspaces evaluate runs/* --plane
    """
    execution = parser.device_of(options)
    fields = {name: value for name, value in parser.given(options, Settings).items() if name in FIELDS}
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
    given = {name: value for name, value in (("severities", severities), ("seed", seed)) if value is not None}
    if names:
        return Corruptions(names[0] if names in (["all"], [EXTRA]) else names, **given)  # type: ignore[arg-type]
    for name, value in given.items():
        raise ArgumentError(f"{name}={value}: expected it with --corruptions all, or some of them")
    return None


def _summary(folder: Path, record: Evaluation) -> dict[str, Any]:
    recipe = record.recipe or {}
    return {
        "run": record.name,
        "recipe": recipe["name"],
        "seed": recipe["seed"],
        "folder": str(folder),
        "results": [*tables.lines(record)],
        "shifts": list(tables.lines_on(record)),
        "outliers": list(tables.lines_on(record, outliers=True)),
    }


def select(options: argparse.Namespace) -> None:
    """Choose the point of a finished run for a new domain, on a few labelled images of it.

    The midpoint is left only where a gain is certain.

    Example: subspaces select runs/cifar10-line-seed0-… --corruption fog
    """
    names = ("corruption", "severity", "examples", "by", "per", "statistics_batches", "seed")
    chosen = {name: getattr(options, name) for name in names}
    run_selection.check(*(chosen[name] for name in names[:5]))
    execution = parser.device_of(options)
    if options.out is not None:
        check_target(options.out)
    where: dict[str, Any] = {"data": options.data, "trust": options.trust}
    found = run_selection.select_run(options.run, **chosen, execution=execution, **where)
    if options.out is not None:
        point = torch.tensor(found.alpha, dtype=torch.float64)
        api.export(options.run, options.out, point=point, progress=not options.json, **where)
    if options.json:
        print(to_json({"run": str(options.run), **dataclasses.asdict(found)}))
        return
    _show_selection(found)
    if options.out is not None:
        printing.echo(f"wrote {options.out}")
        printing.echo(f"wrote {options.out}.md")


def _show_selection(found: RunSelection) -> None:
    for line in f"{found.domain}\n{found.selection}\n".split("\n"):
        printing.echo(line)
    title = f"on the {found.others:,} other images"
    listed = printing.table("network", "point", "accuracy %", "nll", title=title, numbers=("accuracy %", "nll"))
    for row in found.rows:
        printing.add_row(listed, row.name, shown(row.alpha), f"{100 * row.accuracy:.2f}", f"{row.nll:.4f}")
    printing.show(listed)
    printing.echo("best and worst: of the walk, with hindsight on these images")
