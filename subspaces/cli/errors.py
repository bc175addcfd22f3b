"""What the user can fix is one line and an exit code; everything else is a traceback, and where to report it.

Exit codes: 2 if the command was wrong, 1 if it was right and failed, 130 and 143 if Ctrl-C or SIGTERM stopped it.
"""

import dataclasses
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from subspaces.core import memory
from subspaces.errors import ArgumentError, UserError
from subspaces.experiments.data import DataWarning
from subspaces.experiments.training import Execution, Stopped
from subspaces.experiments.training.recipe import all_fields
from subspaces.experiments.training.world import started
from subspaces.text import printable

EXPECTED = (UserError, OSError)
BUG = (
    "This is an error of subspaces or of a package that adds to it, not of what you typed. Please report it with this "
    "traceback, the command and `subspaces --version`: see 'Reporting a bug' in CONTRIBUTING.md."
)
NEED_LESS = "lower --batch or --pad, ask for fewer vertices, points or --cells, or take a machine with more memory"
STOPPED = "stopped; the same command continues"
TOGETHER = ("train",)  # commands that several processes run together
PAUSE = 3.0  # seconds in which another process may say it first
# Typer brings click along under another name in newer versions, so its classes are found through one that it exports.
UsageError, ClickError = (kind for kind in typer.BadParameter.__mro__[1:3] if issubclass(kind, Exception))


class Group(TyperGroup):
    """All commands, with errors of one line."""

    def main(self, args: Any = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        """Run a command and exit."""
        try:
            code = super().main(args, standalone_mode=False, **extra)
        except ClickError as error:
            if not standalone_mode:
                raise
            code = getattr(error, "exit_code", 1)
            if text := _sentence(error):
                _fail(text)
        if standalone_mode:
            sys.exit(code or 0)
        return code

    def invoke(self, ctx: Any) -> Any:
        try:
            with _warnings_in_a_line():
                return super().invoke(ctx)
        except Stopped as stopped:
            _say(STOPPED)
            raise typer.Exit(128 + signal.Signals[str(stopped)]) from None
        except KeyboardInterrupt:
            _say("stopped")
            raise typer.Exit(128 + signal.SIGINT) from None
        except BrokenPipeError:  # `subspaces recipes | head`
            raise
        except EXPECTED as error:
            _fail(str(error) or type(error).__name__)
            raise typer.Exit(1) from None
        except Exception as error:
            if not memory.ran_out(error):
                error.add_note(BUG)
                raise
            _fail(f"out of memory{memory.reason(error)}: {NEED_LESS}")
            raise typer.Exit(1) from None


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Say what is odd about the user's images, without where in this program it was noticed."""
    with warnings.catch_warnings():
        others, said = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, DataWarning):
                if str(message) not in said:  # a command may read the images several times
                    _say(f"warning: {message}")
                said.add(str(message))
            else:
                others(message, category, *rest, **more)

        warnings.showwarning = show
        yield


def _say(text: str) -> None:
    """Print one line for people; of several processes that have the same to say, the first does."""
    if not started()[0]:
        typer.echo(printable(" ".join(text.split())), err=True)


def _fail(text: str) -> None:
    """Print what is wrong; what the first of several processes does not say, another does after a pause.

    Where all of them fail, torchrun has ended that one by then.
    """
    rank, size = started()
    if rank:
        time.sleep(PAUSE)
    told = f"error in process {rank} of {size}" if rank else "error"
    typer.echo(printable(" ".join(f"{told}: {text}".split())), err=True)


def check_processes(command: str | None) -> None:
    """Refuse several processes for a command that is for one."""
    _, size = started()
    if size > 1 and command not in (None, *TOGETHER):
        raise UsageError(
            f"subspaces {command} was started as {size} processes: expected one; torchrun is for "
            f"{' and '.join(TOGETHER)} alone, and what it has trained is found by all other commands"
        )


def _sentence(error: Any) -> str:
    """Return what is wrong with the command, and the nearest name or where to read on."""
    if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
        return ""
    text: str = error.format_message()
    if getattr(error, "possibilities", None):
        return f"{error.message}: did you mean {error.possibilities[0]!r}?"
    if not text.startswith(("No such", "Missing")) or "did you mean" in text.lower():
        return text
    return f"{text.rstrip('.')}; see `{error.ctx.command_path} --help`"


@contextmanager
def usage(*names: str, **typed: str) -> Iterator[None]:
    """Treat errors in values as errors in the command, and name options as they are typed.

    Args:
        names: the command's own options that an error may begin with (`name=…`), beside the fields of recipes and
            of their execution.
        typed: options that are not typed as an error calls them.
    """
    try:
        yield
    except ArgumentError as error:
        fields = (*all_fields(), *(entry.name for entry in dataclasses.fields(Execution)))
        options = {name: name.replace("_", "-") for name in (*fields, *names)} | typed
        raise UsageError(_as_typed(str(error), options)) from None


def _as_typed(text: str, options: Mapping[str, str]) -> str:
    """Return an error about an option (`label_noise=2: …`) as one about what was typed (`--label-noise=2: …`)."""
    name, equals, rest = text.partition("=")
    typed = f"--{options[name]}={rest}" if name in options and equals else text
    return re.sub(r"^--([\w-]+)=(True|False)", r"--\1", typed)
