"""`subspaces export`."""

import argparse
from pathlib import Path
from typing import Any

from subspaces import api
from subspaces.cli import parser, printing
from subspaces.cli.errors import usage
from subspaces.export.exporting import check_target


def add(commands: Any) -> None:
    """Add the command."""
    command = parser.add_command(commands, export)
    command.add_argument("run", type=Path, metavar="RUN", help="The folder of a finished run.")
    command.option(
        "--point",
        nargs="+",
        action="extend",
        metavar="NAME|ALPHA",
        help="midpoint (default); a point such as 0.3 or 0.2,0.3,0.5; several to average; ensemble: all vertices, "
        "or 0.1 and 0.9 of a line; family: alpha is an input.",
    )
    text = "Training batches for batch-norm statistics. Default: all training images."
    command.option("--statistics-batches", panel=parser.EXECUTION, type=int, metavar="INT", help=text)
    parser.add_data(command, trust=True)
    text = "The file: .safetensors, weights alone; .pt2, a program for torch; .onnx, for any runtime."
    command.option("--out", "-o", panel=parser.OUTPUT, type=Path, metavar="FILE", required=True, help=text)
    parser.add_output(command)


def export(options: argparse.Namespace) -> None:
    """Write a network of a run as one file for production, with a model card beside it.

    Batch-norm statistics are made anew from the training images. A program takes images in [0, 1] and returns
    probabilities; it is checked against the network before it is written.

    Example: subspaces export runs/digits-line-… --out pair.onnx --point ensemble
    """
    points = options.point or ["midpoint"]
    point = points if len(points) > 1 else points[0]
    with usage("point", path="out"):
        check_target(options.out)
    how = {"data": options.data, "trust": options.trust, "statistics_batches": options.statistics_batches}
    written = api.export(options.run, options.out, point=point, progress=not options.quiet, **how)
    printing.echo(f"wrote {written}")
    printing.echo(f"wrote {written}.md")
