"""Errors on the command line: what a user can fix is one line and an exit code; everything else is a traceback.

Exit codes: 2 if the command was wrong, 1 if it was right and failed, 130 and 143 if Ctrl-C or SIGTERM stopped it.
"""

import dataclasses
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from subspaces.core import memory
from subspaces.errors import ArgumentError, UserError
from subspaces.experiments.data import DataWarning
from subspaces.experiments.training import Execution, Stopped
from subspaces.experiments.training.execution import started
from subspaces.experiments.training.recipe import all_fields
from subspaces.text import printable

BUG = (
    "This is an error of subspaces or of a package that adds to it, not of what you typed. Please report it with this "
    "traceback, the command and `subspaces --version`: see 'Reporting a bug' in CONTRIBUTING.md."
)
NEED_LESS = "lower --batch or --pad, ask for fewer vertices, points or --cells, or take a machine with more memory"
DISTRIBUTED = ("train",)  # commands that several processes run together
PAUSE = 3.0  # seconds in which another process may report first


class UsageError(Exception):
    """A wrong command."""


def guarded(run: Callable[[], int]) -> int:  # noqa: PLR0911
    """Run a command and return its exit code."""
    try:
        with _short_warnings():
            return run()
    except UsageError as error:
        _fail(str(error))
        return 2
    except Stopped as stopped:
        _say("stopped; the same command continues")
        return 128 + signal.Signals[str(stopped)]
    except KeyboardInterrupt:
        _say("stopped")
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `subspaces recipes | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (UserError, OSError) as error:
        _fail(str(error) or type(error).__name__)
        return 1
    except Exception as error:
        if not memory.ran_out(error):
            error.add_note(BUG)
            raise
        _fail(f"out of memory{memory.reason(error)}: {NEED_LESS}")
        return 1


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Print each warning about the user's images once, without the place in this program that it comes from."""
    with warnings.catch_warnings():
        others, said = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if not issubclass(category, DataWarning):
                others(message, category, *rest, **more)
            elif str(message) not in said:
                said.add(str(message))
                _say(f"warning: {message}")

        warnings.showwarning = show
        yield


def _say(text: str) -> None:
    """Print one line on standard error, in the first of several processes only."""
    if not started()[0]:
        print(printable(" ".join(text.split())), file=sys.stderr)


def _fail(text: str) -> None:
    """Print an error; other processes than the first wait, as torchrun ends them where all have the same error."""
    rank, size = started()
    if rank:
        time.sleep(PAUSE)
    label = f"error in process {rank} of {size}" if rank else "error"
    print(printable(" ".join(f"{label}: {text}".split())), file=sys.stderr)


def check_processes(command: str) -> None:
    """Refuse several processes for a command that is for one."""
    _, size = started()
    if size > 1 and command not in DISTRIBUTED:
        raise UsageError(
            f"subspaces {command} was started as {size} processes: expected one; torchrun is for "
            f"{' and '.join(DISTRIBUTED)} alone, and all other commands find what it has trained"
        )


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
