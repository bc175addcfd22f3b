"""`subspaces plot` and `subspaces report`: figures and pages of evaluated runs."""

import argparse
import inspect
from pathlib import Path
from typing import Any

from subspaces import evaluations
from subspaces.cli import parser, printing
from subspaces.errors import ArgumentError
from subspaces.evaluation import METRICS
from subspaces.reports import figures

RUNS = "Folders of evaluated runs, or files of saved evaluations."


def add(commands: Any) -> None:
    """Add the commands; the help of `plot` lists the figures and the metrics."""
    kinds = [f"{name}: {kind.description} {kind.metric or ''}" for name, kind in figures.KINDS.items()]
    metrics = f"Metrics: {'; '.join(f'{each.name}, {each.meaning}' for each in METRICS.values())}."
    text = "\n\n".join([inspect.getdoc(plot) or "", *kinds, metrics])
    command = parser.add_command(commands, plot, text=text)
    command.option("name", metavar="NAME", help="The figure: one of those above.")
    parser.add_runs(command, RUNS)
    text = "The metric that is shown, one of those above; each figure has its default."
    command.option("--metric", metavar="NAME", help=text)
    command.option("--split", metavar="NAME", help="The images whose numbers are shown: test (default) or validation.")
    text = "A .png or .pdf file. Default: both, named by the figure."
    parser.add_output(command, None, text, "FILE", quiet=False)
    command = parser.add_command(commands, report)
    parser.add_runs(command, RUNS)
    parser.add_output(command, Path("report.html"), "The HTML file.", "FILE", quiet=False)


def plot(options: argparse.Namespace) -> None:
    """Draw a figure of finished runs, from the files in their folders, or of the files of saved evaluations.

    Runs of one recipe that differ in their seed are drawn as one: mean and standard deviation.

    Example: subspaces plot along runs/digits-* -o along.pdf
    """
    name, split = options.name, options.split
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


def report(options: argparse.Namespace) -> None:
    """Write one page about evaluated runs, or files of saved evaluations, which opens offline in any browser.

    Tables, charts, a walk through each subspace, and how everything was trained and measured.

    Example: subspaces report runs/* -o report.html
    """
    path = evaluations.report(options.runs, options.out)
    printing.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
