"""`subspaces study instability | integral | noise`."""

import typer

from subspaces.cli import instability, integral, noise
from subspaces.cli.options import Several

app = typer.Typer(help="Studies: many runs, one table and one figure.", no_args_is_help=True)
app.command(cls=Several)(instability.instability)
app.command(cls=Several)(integral.integral)
app.command(cls=Several)(noise.noise)
