"""`subspaces report`."""

import argparse
from pathlib import Path
from typing import Any

from subspaces import evaluations
from subspaces.cli import parser, printing
from subspaces.cli.errors import usage


def add(commands: Any) -> None:
    """Add the command."""
    command = parser.add_command(commands, report)
    parser.add_runs(command)
    parser.add_output(command, Path("report.html"), "The HTML file.", "FILE", quiet=False)


def report(options: argparse.Namespace) -> None:
    """Write one page about evaluated runs, or files of saved evaluations, which opens offline in any browser.

    Tables, charts, a walk through each subspace, and how everything was trained and measured.

    Example: subspaces report runs/* -o report.html
    """
    with usage():
        path = evaluations.report(options.runs, options.out)
    printing.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
