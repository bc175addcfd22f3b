"""`subspaces check`."""

from pathlib import Path
from typing import Annotated

import typer

from subspaces.cli import printing
from subspaces.cli.shared import Quiet


def check(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="A run folder, or a folder of run folders.", show_default=False)
    ],
    quiet: Quiet = False,
) -> None:
    """Check that run folders are as they were written: every file against its checksum, and against each other.

    Says what is wrong and what to do about it; the exit code is 1 if something is.

    Example: subspaces check runs
    """
    from subspaces.experiments.evaluating.integrity import checked

    wrong = 0
    for folder in runs:
        for path, problems in checked(folder):
            for problem in problems:
                printing.echo(f"wrong: {problem}")
            if not problems and not quiet:
                printing.echo(f"whole: {path}")
            wrong += len(problems)
    if wrong:
        raise typer.Exit(1)
