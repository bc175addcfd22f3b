"""`subspaces plot`."""

import inspect
from pathlib import Path
from typing import Annotated

import typer

from subspaces.cli.errors import usage
from subspaces.report import figures


def plot(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The figure: one of those above.", show_default=False)],
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of finished runs on one data set.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="A .png or .pdf file; by default both, named by the figure."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="What is shown, such as accuracy, nll, brier, ece, adaptive_ece or aurc; each figure has its default.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="The images it was measured on: test or validation.", show_default="test")
    ] = None,
) -> None:
    """Draw a figure of finished runs, from the files that training and evaluation left in their folders.

    Runs of one recipe that differ in their seed are drawn as one: mean and standard deviation.
    """
    with usage("metric", "split"):
        if split is not None and not figures.find(name).evaluated:
            raise ValueError(f"split={split!r}: the figure {name!r} has no choice of a split, leave it out")
        paths = figures.plot(name, runs, out, metric=metric, split="test" if split is None else split)
    for path in paths:
        typer.echo(f"wrote {path}")


plot.__doc__ = "\n\n".join(
    [
        inspect.cleandoc(plot.__doc__ or ""),
        *(f"{kind.name}: {kind.description} {kind.metric or ''}" for kind in figures.KINDS.values()),
        "Example: subspaces plot along runs/digits-standard-* runs/digits-line-* -o along.pdf",
    ]
)
