"""`subspaces export`."""

from pathlib import Path
from typing import Annotated

import typer

from subspaces import api
from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.options import ROOT
from subspaces.cli.shared import EXECUTION, Code, Data, Quiet, Trust, completing, option, out_option
from subspaces.export.arguments import NAMES
from subspaces.export.exporting import check_target

POINT = "Point: which networks"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.", show_default=False)],
    out: Annotated[
        Path,
        out_option("The file: .safetensors, weights alone; .pt2, a program for torch; .onnx, for any runtime.", "FILE"),
    ],
    point: Annotated[
        list[str] | None,
        option(
            "midpoint; a point such as 0.3 or 0.2,0.3,0.5; selected: by `subspaces select`; ensemble: all vertices, or "
            "0.1 and 0.9 of a line; family: alpha is an input. Several points, --point 0.1 0.9, answer together.",
            "NAME|ALPHA",
            POINT,
            "midpoint",
            autocompletion=completing(lambda: NAMES),
        ),
    ] = None,
    statistics_batches: Annotated[
        int | None,
        option("Training batches for batch-norm statistics; by default all training images.", "INT", EXECUTION),
    ] = None,
    data: Data = ROOT,
    code: Code = None,
    trust: Trust = False,
    quiet: Quiet = False,
) -> None:
    """Write a network of a run as one file for production, with a model card beside it.

    Batch-norm statistics are made anew from the training images. A program takes images in [0, 1] and returns
    probabilities; it is checked against the network before it is written.

    Example: subspaces export runs/digits-line-… --out pair.onnx --point ensemble
    """
    chosen = "midpoint" if not point else point[0] if len(point) == 1 else point
    with usage("point", path="out"):
        check_target(out)
    written = api.export(
        run, out, point=chosen, statistics_batches=statistics_batches, data=data, trust=trust, progress=not quiet
    )
    printing.echo(f"wrote {written}")
    printing.echo(f"wrote {written}.md")
