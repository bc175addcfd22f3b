"""`subspaces export` and `subspaces predict`: networks in production."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subspaces import api
from subspaces.cli import parser, printing
from subspaces.core import storage
from subspaces.errors import ArgumentError
from subspaces.evaluation.files import to_json
from subspaces.export.exporting import check_target
from subspaces.export.predicting import Predictions
from subspaces.text import one_of, printable

if TYPE_CHECKING:
    from pandas import DataFrame

FORMATS = ("table", "csv", "json")


def add(commands: Any) -> None:
    """Add the commands."""
    command = parser.add_command(commands, export)
    command.typed = {"path": "out"}
    command.option("run", type=Path, metavar="RUN", help="The folder of a finished run.")
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

    command = parser.add_command(commands, predict)
    command.option("model", type=Path, metavar="MODEL", help="An .onnx or .pt2 file of `subspaces export`.")
    text = "Image files, folders of them at any depth, .npy arrays of the model's size."
    command.option("inputs", nargs="+", type=Path, metavar="INPUT", help=text)
    text = "Number of likeliest classes to show. Default: 1."
    command.option("--top", type=int, metavar="INT", default=1, help=text)
    command.option("--format", metavar="NAME", default="table", help="table, csv or json. Default: table.")
    text = "Also read a .pt2 file, which runs code of whoever made it."
    command.option("--trust", panel=parser.EXECUTION, action="store_true", help=text)
    parser.add_output(command, None, "Write to this file instead of the screen.", "FILE")


def export(options: argparse.Namespace) -> None:
    """Write a network of a run as one file for production, with a model card beside it.

    Batch-norm statistics are made anew from the training images. A program takes images in [0, 1] and returns
    probabilities; it is checked against the network before it is written.

    Example: subspaces export runs/digits-line-… --out pair.onnx --point ensemble
    """
    points = options.point or ["midpoint"]
    point = points if len(points) > 1 else points[0]
    check_target(options.out)
    how = {"data": options.data, "trust": options.trust, "statistics_batches": options.statistics_batches}
    written = api.export(options.run, options.out, point=point, progress=not options.quiet, **how)
    printing.echo(f"wrote {written}")
    printing.echo(f"wrote {written}.md")


def predict(options: argparse.Namespace) -> int:
    """Predict the classes of images with an exported model.

    Images may have any size and kind: they are cut to their middle, scaled and given the channels that the model takes.
    What cannot be read is named on standard error and left out. The exit code is 0 if anything could be read, 1 if
    nothing could.

    Example: subspaces predict midpoint.onnx photos --top 3 --format csv
    """
    out, top = options.out, options.top
    one_of("format", options.format, FORMATS)
    if top < 1:
        raise ArgumentError(f"top={top}: expected at least 1")
    if out is not None and not out.parent.is_dir():
        raise ArgumentError(f"out={out}: there is no folder {out.parent}; make it first")
    found = api.predict(options.model, options.inputs, top=top, trust=options.trust, progress=not options.quiet)
    for each in found.skipped:
        printing.echo(f"skipped {each.file}: {each.reason}", err=True)
    if options.format == "json":
        text = _json(found)
    else:
        frame = _frame(found)
        text = _table(frame) if options.format == "table" else frame.to_csv(index=False, lineterminator="\n")
    if out is not None:
        storage.write(out, text.encode())
    elif found.predictions or options.format != "table":
        print(text, end="")
    if not found.predictions:
        printing.echo("error: none of the inputs could be read as an image", err=True)
    return 0 if found.predictions else 1


def _frame(found: Predictions) -> "DataFrame":
    """Return the predictions as text, a row for each."""
    from pandas import DataFrame

    rows = []
    for each in found.predictions:
        row = {"file": printable(each.file)}
        for place, (label, share) in enumerate(each.top, 1):
            which = f" {place}" if place > 1 else ""
            row |= {f"label{which}": printable(label), f"probability{which}": f"{share:.6f}"}
        rows.append(row if each.disagreement is None else {**row, "disagreement": f"{each.disagreement:.6f}"})
    return DataFrame(rows, columns=None if rows else ["file", "label", "probability"])


def _table(frame: "DataFrame") -> str:
    numbers = [name for name in frame if name.startswith(("probability", "disagreement"))]
    filled = printing.table(*frame, numbers=numbers)
    for row in frame.itertuples(index=False):
        printing.add_row(filled, *row)
    return printing.as_text(filled)


def _json(found: Predictions) -> str:
    predictions = [
        {
            "file": each.file,
            "label": each.label,
            "probability": each.probability,
            "top": [{"label": label, "probability": share} for label, share in each.top],
            **({} if each.disagreement is None else {"disagreement": each.disagreement}),
        }
        for each in found.predictions
    ]
    skipped = [vars(each) for each in found.skipped]
    return to_json({"model": found.model, "predictions": predictions, "skipped": skipped}, indent=2) + "\n"
