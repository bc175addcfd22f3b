"""The command line: the only place that reads arguments and prints."""

import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer

from subspaces.cli import (
    check,
    data,
    demo,
    evaluate,
    export,
    plot,
    predict,
    recipes,
    report,
    reproduce,
    select,
    study,
    train,
)
from subspaces.cli.errors import Group, check_processes
from subspaces.cli.options import Several, complete
from subspaces.core.memory import keep_memory

__all__ = ["app", "build", "main"]


def _version(wanted: bool) -> None:
    if wanted:
        from subspaces.version import __version__

        typer.echo(f"subspaces {__version__}")
        raise typer.Exit


def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Read the options that come before a command."""
    check_processes(context.invoked_subcommand)


def build() -> typer.Typer:
    """Return the command line, with an option for every field of every method that there is by now."""
    built = typer.Typer(
        cls=Group,
        help="One training run, a whole family of networks: lines, curves and simplexes in weight space.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    built.callback()(options)
    built.command()(demo.demo)
    built.command(cls=Several)(complete(train.train))
    built.command(cls=Several)(complete(evaluate.evaluate))
    built.command()(complete(select.select))
    built.command(cls=Several)(complete(study.compare))
    built.command(cls=Several)(complete(reproduce.reproduce))
    built.command(cls=Several)(export.export)
    built.command()(predict.predict)
    plot.describe()
    for command in (plot.plot, report.report, check.check, recipes.recipes):
        built.command()(command)
    built.add_typer(study.build(), name="study")
    built.add_typer(data.app, name="data")
    return built


app = build()


def main() -> None:
    """Run the command line."""
    keep_memory()
    add_from_packages()
    build()()


def add_from_packages() -> None:
    """Import what other installed packages add: methods, recipes, metrics, answers, tasks.

    A package names the module in its pyproject.toml, and it is imported before all else; one that fails is an error of
    one line:

        [project.entry-points.subspaces]
        mine = "my_package.my_methods"
    """
    for point in entry_points(group="subspaces"):
        try:
            point.load()
        except Exception as error:
            said = " ".join(str(error).split()) or type(error).__name__
            package = f"{point.dist.name if point.dist else 'a package'} ({point.name} = {point.value!r})"
            sys.exit(f"error: {package} cannot add to subspaces: {said}; mend it, or uninstall it")
