"""`subspaces predict`."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from subspaces import api
from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.shared import Code, Quiet, Trust, completing, option, out_option
from subspaces.core import storage
from subspaces.errors import ArgumentError
from subspaces.evaluation.files import to_json
from subspaces.export.predicting import Predictions
from subspaces.text import nearest, printable

if TYPE_CHECKING:
    from pandas import DataFrame

FORMATS = ("table", "csv", "json")
WIDE = 200  # columns of a table in a file


def predict(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A file of `subspaces export`.", show_default=False),
    ],
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT", help="Image files, folders of them at any depth, .npy or .npz arrays.", show_default=False
        ),
    ],
    top: Annotated[int, option("How many of the likeliest classes are shown.", "INT", default=True)] = 1,
    format: Annotated[
        str,
        option("table, csv or json.", "NAME", default=True, autocompletion=completing(lambda: FORMATS)),
    ] = "table",
    code: Code = None,
    trust: Trust = False,
    out: Annotated[Path | None, out_option("Write to this file instead of the screen.", "FILE")] = None,
    quiet: Quiet = False,
) -> None:
    """Predict the classes of images with an exported model.

    Images may have any size and kind: they are cut to their middle, scaled and given the channels that the model takes.
    What cannot be read is named on standard error and left out. The exit code is 0 if anything could be read, 1 if
    nothing could.

    Example: subspaces predict midpoint.onnx photos --top 3 --format csv
    """
    with usage("top", "format"):
        if format not in FORMATS:
            raise ArgumentError(f"format={format!r}: {nearest(format, FORMATS)}")
        if top < 1:
            raise ArgumentError(f"top={top}: expected at least 1")
        if out is not None and not out.parent.is_dir():
            raise ArgumentError(f"--out {out}: there is no folder {out.parent}; make it first")
    found = api.predict(model, inputs, top=top, trust=trust, progress=not quiet)
    for each in found.skipped:
        typer.echo(printable(f"skipped {each.file}: {each.reason}"), err=True)
    if format == "json":
        text = _json(found)
    else:
        frame = _frame(found)
        text = frame.to_csv(index=False, lineterminator="\n") if format == "csv" else _table(frame, out is not None)
    if out is not None:
        storage.write(out, text.encode())
    elif text:
        typer.echo(text, nl=False)
    if not found.predictions:
        typer.echo("error: none of the inputs could be read as an image", err=True)
        raise typer.Exit(1)


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


def _table(frame: "DataFrame", to_file: bool) -> str:
    """Print a table, or return it as the text of a file."""
    numbers = [name for name in frame if name.startswith(("probability", "disagreement"))]
    filled = printing.table(*frame, numbers=numbers)
    for row in frame.itertuples(index=False):
        filled.add_row(*map(escape, row))
    if to_file:
        console = Console(width=WIDE, file=io.StringIO())
        console.print(filled)
        return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]
    if len(frame):
        printing.show(filled)
    return ""
