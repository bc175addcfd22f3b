"""`subspaces plot`."""

import argparse
import inspect
from typing import Any

from subspaces import evaluations
from subspaces.cli import parser, printing
from subspaces.cli.errors import usage
from subspaces.errors import ArgumentError
from subspaces.evaluation import METRICS
from subspaces.reports import figures


def add(commands: Any) -> None:
    """Add the command, whose help lists the figures and the metrics."""
    kinds = [f"{name}: {kind.description} {kind.metric or ''}" for name, kind in figures.KINDS.items()]
    metrics = f"Metrics: {'; '.join(f'{each.name}, {each.meaning}' for each in METRICS.values())}."
    text = "\n\n".join([inspect.getdoc(plot) or "", *kinds, metrics])
    command = parser.add_command(commands, plot, text=text)
    command.add_argument("name", metavar="NAME", help="The figure: one of those above.")
    parser.add_runs(command)
    text = "The metric that is shown, one of those above; each figure has its default."
    command.option("--metric", metavar="NAME", help=text)
    command.option("--split", metavar="NAME", help="The images whose numbers are shown: test (default) or validation.")
    text = "A .png or .pdf file. Default: both, named by the figure."
    parser.add_output(command, None, text, "FILE", quiet=False)


def plot(options: argparse.Namespace) -> None:
    """Draw a figure of finished runs, from the files in their folders, or of the files of saved evaluations.

    Runs of one recipe that differ in their seed are drawn as one: mean and standard deviation.

    Example: subspaces plot along runs/digits-standard-* runs/digits-line-* -o along.pdf
    """
    name, split = options.name, options.split
    with usage("metric", "split"):
        if split is not None and not figures.find(name).evaluated:
            raise ArgumentError(f"split={split!r}: the figure {name!r} has no choice of a split, leave it out")
        figures.check(name, options.metric)
        paths = figures.outputs(name, options.out)
        given = {"metric": options.metric, "split": split}
        given = {key: value for key, value in given.items() if value is not None}
        figure = evaluations.plot(name, options.runs, options.out, **given)
    for path in paths:
        if options.out is None:
            figures.save(figure, path)
        printing.echo(f"wrote {path}")
