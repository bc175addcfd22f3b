"""Errors on the command line: what a user can fix is one line and an exit code; everything else is a traceback.

Exit codes: 2 if the command was wrong, 1 if it was right and failed, 130 and 143 if Ctrl-C or SIGTERM stopped it.
"""

import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from subspaces.core import memory
from subspaces.errors import UserError
from subspaces.experiments.training import Stopped
from subspaces.experiments.training.execution import started
from subspaces.text import printable

BUG = (
    "This is an error of subspaces or of a package that adds to it, not of what you typed. Please report it with this "
    "traceback, the command and `subspaces --version`: see 'Reporting a bug' in CONTRIBUTING.md."
)
NEED_LESS = "lower --batch or --pad, ask for fewer vertices, points or --cells, or take a machine with more memory"
PAUSE = 3.0  # seconds in which another process may report first


class UsageError(Exception):
    """A wrong command."""


def guarded(run: Callable[[], int]) -> int:  # noqa: PLR0911
    """Run a command and return its exit code."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            return _flushed(run)
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


def _flushed(run: Callable[[], int]) -> int:
    """Run a command, and write what it has printed while a closed pipe can still be caught."""
    if sys.stdout is None:  # closed by the shell, `>&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        return run()
    except SystemExit as ended:  # of --help
        return int(ended.code or 0)
    finally:
        sys.stdout.flush()


def _warn(message: Warning | str, *place: Any, **more: Any) -> None:
    """Print a warning without the place in this program that it comes from."""
    _say(f"warning: {message}")


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
    if size > 1 and command != "train":
        raise UsageError(
            f"subspaces {command} was started as {size} processes: expected one; torchrun is for train alone, and all "
            "other commands find what it has trained"
        )
