"""`subspaces check`."""

import argparse
from pathlib import Path
from typing import Any

from subspaces.cli import parser, printing
from subspaces.experiments.evaluating.integrity import checked


def add(commands: Any) -> None:
    """Add the command."""
    command = parser.add_command(commands, check)
    text = "A run folder, or a folder of run folders."
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=text)
    parser.add_output(command)


def check(options: argparse.Namespace) -> int:
    """Check that run folders are as they were written: every file against its checksum, and against each other.

    Says what is wrong and what to do about it; the exit code is 1 if something is.

    Example: subspaces check runs
    """
    wrong = 0
    for folder in options.runs:
        for path, problems in checked(folder):
            for problem in problems:
                printing.echo(f"wrong: {problem}")
            if not problems and not options.quiet:
                printing.echo(f"whole: {path}")
            wrong += len(problems)
    return 1 if wrong else 0
