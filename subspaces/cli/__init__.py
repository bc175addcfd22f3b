"""The command line: the only place that reads arguments and prints."""

from typing import Annotated

import typer

from subspaces.cli import check, compare, data, demo, evaluate, plot, recipes, report, study, train
from subspaces.cli.errors import Group
from subspaces.cli.options import Several

__all__ = ["app", "main"]

app = typer.Typer(
    cls=Group,
    help="One training run, a whole family of networks: lines, curves and simplexes in weight space.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo.demo)
app.command(cls=Several)(train.train)
app.command(cls=Several)(evaluate.evaluate)
app.command(cls=Several)(compare.compare)
app.command()(plot.plot)
app.command()(report.report)
app.command()(check.check)
app.command()(recipes.recipes)
app.add_typer(study.app, name="study")
app.add_typer(data.app, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        from subspaces.version import __version__

        typer.echo(f"subspaces {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Read the options that come before a command."""


def main() -> None:
    """Run the command line; `importing` has seen to it that nothing comes from the current folder."""
    app()
