"""`subspaces plot`."""

import inspect
from pathlib import Path
from typing import Annotated

import typer

from subspaces import evaluations
from subspaces.cli import printing
from subspaces.cli.errors import usage
from subspaces.cli.shared import RunFolders, figure_names, metric_names, option, out_option
from subspaces.errors import ArgumentError
from subspaces.evaluation import METRICS
from subspaces.reports import figures


def plot(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The figure: one of those above.", autocompletion=figure_names),
    ],
    runs: RunFolders,
    out: Annotated[
        Path | None, out_option("A .png or .pdf file; by default both, named by the figure.", "FILE")
    ] = None,
    metric: Annotated[
        str | None,
        option(
            "The metric that is shown, one of those above; each figure has its default.",
            "NAME",
            autocompletion=metric_names,
        ),
    ] = None,
    split: Annotated[
        str | None, option("The images whose numbers are shown: test or validation.", "NAME", default="test")
    ] = None,
) -> None:
    """Draw a figure of finished runs, from the files in their folders, or of the files of saved evaluations.

    Runs of one recipe that differ in their seed are drawn as one: mean and standard deviation.
    """
    with usage("metric", "split"):
        if split is not None and not figures.find(name).evaluated:
            raise ArgumentError(f"split={split!r}: the figure {name!r} has no choice of a split, leave it out")
        figures.check(name, metric)
        paths = figures.outputs(name, out)
        given = {"metric": metric, "split": split}
        figure = evaluations.plot(name, runs, out, **{key: value for key, value in given.items() if value is not None})
    for path in paths:
        if out is None:
            figures.save(figure, path)
        printing.echo(f"wrote {path}")


TEXT = inspect.cleandoc(plot.__doc__ or "")


def describe() -> None:
    """Let the help list the figures and the metrics that there are by now."""
    plot.__doc__ = "\n\n".join(
        [
            TEXT,
            *(f"{name}: {kind.description} {kind.metric or ''}" for name, kind in figures.KINDS.items()),
            f"Metrics: {'; '.join(f'{each.name}, {each.meaning}' for each in METRICS.values())}.",
            "Example: subspaces plot along runs/digits-standard-* runs/digits-line-* -o along.pdf",
        ]
    )
