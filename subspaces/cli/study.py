"""`subspaces study instability | integral | noise`."""

import typer

from subspaces.cli import instability, integral, noise
from subspaces.cli.options import Several, complete


def build() -> typer.Typer:
    """Return the commands of the studies, with an option for every field that there is."""
    app = typer.Typer(help="Studies: many runs, one table and one figure.", no_args_is_help=True)
    for command in (instability.instability, integral.integral, noise.noise):
        app.command(cls=Several)(complete(command))
    return app
