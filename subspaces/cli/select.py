"""`subspaces select`."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape

from subspaces import api
from subspaces.cli import parser, printing
from subspaces.cli.errors import usage
from subspaces.core.selection import shown
from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.evaluation.files import to_json
from subspaces.experiments.evaluating import selection as run_selection
from subspaces.experiments.evaluating.selection import RunSelection
from subspaces.experiments.training import Execution
from subspaces.export.exporting import check_target

DOMAIN = "domain: the images to choose for"
CHOICE = "choice"


def add(commands: Any) -> None:
    """Add the command."""
    command = parser.add_command(commands, select)
    command.add_argument("run", type=Path, metavar="RUN", help="The folder of a finished run.")
    text = f"Corrupt the run's test images, as ImageNet-C does: {', '.join(CORRUPTIONS)}."
    command.option("--corruption", panel=DOMAIN, metavar="NAME", help=text)
    command.option("--severity", panel=DOMAIN, type=int, metavar="INT", default=3, help="From 1 to 5. Default: 3.")
    text = "Other images: an .npz file with images (uint8) and labels."
    command.option("--images", panel=DOMAIN, type=Path, metavar="PATH", help=text)
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


def select(options: argparse.Namespace) -> None:
    """Choose the point of a finished run for a new domain, on a few labelled images of it.

    The midpoint is left only where a gain is certain.

    Example: subspaces select runs/cifar10-line-* --corruption fog --severity 3 --examples 100
    """
    names = ("corruption", "severity", "images", "examples", "by", "per", "statistics_batches", "seed")
    chosen = {name: getattr(options, name) for name in names}
    with usage(*names):
        run_selection.check(*(chosen[name] for name in names[:6]))
        execution = parser.device_of(options)
    with usage(path="out"):
        if options.out is not None:
            check_target(options.out)
    where: dict[str, Any] = {"data": options.data, "trust": options.trust}
    with usage(*names):
        found = run_selection.select_run(options.run, **chosen, execution=execution, **where)
    if options.out is not None:
        point = torch.tensor(found.alpha, dtype=torch.float64)
        api.export(options.run, options.out, point=point, progress=not options.json, **where)
    if options.json:
        print(to_json({"run": str(options.run), **dataclasses.asdict(found)}))
        return
    _show(found)
    if options.out is not None:
        printing.echo(f"wrote {options.out}")
        printing.echo(f"wrote {options.out}.md")


def _show(found: RunSelection) -> None:
    for line in f"{found.domain}\n{found.selection}\n".split("\n"):
        printing.echo(line)
    title = f"on the {found.others:,} other images"
    listed = printing.table("network", "point", "accuracy %", "nll", title=title, numbers=("accuracy %", "nll"))
    for row in found.rows:
        listed.add_row(row.name, escape(shown(row.alpha)), f"{100 * row.accuracy:.2f}", f"{row.nll:.4f}")
    printing.show(listed)
    printing.echo("best and worst: of the walk, with hindsight on these images")
