"""The command line: the only place that parses arguments or prints."""

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points

from subspaces.cli import errors
from subspaces.cli.parser import Parser
from subspaces.core.memory import keep_memory
from subspaces.errors import ArgumentError

__all__ = ["build", "main"]

MODULES = ("train", "evaluate", "study", "reproduce", "export", "report", "inspect")  # in the order of the help


def build() -> Parser:
    """Return the parser of all commands, with an option for every field of every method that there is by now."""
    parser = Parser(
        prog="subspaces",
        description="One training run, a whole family of networks: lines, curves and simplexes in weight space.",
    )
    parser.add_argument("--version", action="store_true", help="Print the version and exit.")
    commands = parser.add_commands()
    for name in MODULES:
        import_module(f"subspaces.cli.{name}").add(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    keep_memory()
    sys.exit(errors.guarded(partial(_run, sys.argv[1:] if arguments is None else list(arguments))))


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        from subspaces.version import __version__

        print(f"subspaces {__version__}")
        return 0
    _load_plugins()
    options = build().parse(arguments)
    if "function" not in options:  # no command, or a group of commands alone
        options.parser.print_help()
        return 2
    errors.check_processes(options.command)
    if getattr(options, "code", None) is not None:
        sys.path.append(str(options.code.resolve()))  # after all others
    try:
        return int(options.function(options) or 0)
    except ArgumentError as error:
        if type(error) is not ArgumentError:  # its subclasses are about files
            raise
        raise errors.UsageError(options.parser.as_typed(str(error), options)) from None


def _load_plugins() -> None:
    """Import the modules that installed packages name as entry points of "subspaces"; they add methods and the like."""
    for point in entry_points(group="subspaces"):
        try:
            point.load()
        except Exception as error:
            package = f"{point.dist.name if point.dist else 'a package'} ({point.name} = {point.value!r})"
            raise errors.UsageError(
                f"{package} failed to import: {error or type(error).__name__}; fix or uninstall it"
            ) from error
