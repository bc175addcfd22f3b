"""Commands in forked children of one process that has imported everything: 50 ms each instead of 3 s (Linux only)."""

import contextlib
import ctypes
import gc
import importlib
import os
import pkgutil
import resource
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 60.0  # until a command hangs
MEMORY = 3 << 30  # that a command may use more than this process
Kill = tuple[int, float]
"""A signal, after so many seconds."""
STOPS = (signal.SIGINT, signal.SIGTERM)
LAZY = ("torch._dynamo", "matplotlib.pyplot", "matplotlib.backends.backend_agg", "scipy.special", "plotly", "PIL.Image")


@dataclass(frozen=True)
class Ended:
    """How a command ended; a negative code is the signal that ended it."""

    code: int
    out: str
    err: str
    hung: bool = False
    strays: bool = False  # it left processes behind

    @property
    def lines(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.strip()]


def warm_up(home: Path) -> None:
    """Import everything, and give commands a home of their own."""
    home.mkdir(parents=True, exist_ok=True)
    os.environ |= {"HOME": str(home), "SUBSPACES_COMMIT": "campaign", "COLUMNS": "200", "MPLBACKEND": "agg"}
    os.environ.setdefault("MPLCONFIGDIR", str(home))
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    import torch

    import subspaces

    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    for name in LAZY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for module in pkgutil.walk_packages(subspaces.__path__, "subspaces."):
        if not module.name.endswith(("__main__", "kernels")) and ".integrations." not in module.name:
            importlib.import_module(module.name)
    importlib.import_module("subspaces.experiments.data").load("digits")  # which a process reads once
    cli = importlib.import_module("subspaces.cli")
    cli.build()
    gc.collect()
    gc.freeze()  # pages that nobody touches are shared


def command(
    argv: Sequence[str], folder: Path, first: Callable[[], Any] | None = None, kill: Kill | None = None
) -> Ended:
    """Run `subspaces ARGV` in a forked child with this current folder; `first` comes before it."""
    return Child(argv, folder, first).wait(kill)


def together(lines: Sequence[Sequence[str]], folder: Path) -> list[Ended]:
    """Run several commands at once in one folder."""
    children = [Child(argv, folder) for argv in lines]
    return [one.wait() for one in children]


def _main(argv: Sequence[str]) -> None:
    from subspaces import cli

    sys.argv = ["subspaces", *argv]
    cli.main()


class Child:
    """A forked child with a process group, a folder, files for its output, and a limit of memory."""

    def __init__(self, argv: Sequence[str], folder: Path, first: Callable[[], Any] | None = None) -> None:
        texts = (tempfile.mkstemp(prefix=f"{folder.name}.", dir=folder.parent) for _ in range(2))
        self.handles, self.paths = zip(*texts, strict=True)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _in_child(argv, folder, self.handles, first)
        for handle in self.handles:
            os.close(handle)

    def wait(self, kill: Kill | None = None) -> Ended:
        """Wait for its end, send it a signal when its moment comes, and end what hangs or is left of it."""
        handle, strays = os.pidfd_open(self.pid), True
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if kill is not None and not poll.poll(1000 * kill[1]):
            os.kill(self.pid, kill[0])
        hung = not poll.poll(1000 * SECONDS)
        if hung:
            os.kill(self.pid, signal.SIGKILL)
        os.close(handle)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            strays = False
        out, err = (Path(path).read_text(errors="replace") for path in self.paths)
        for path in self.paths:
            os.unlink(path)
        return Ended(code, out, err, hung, strays)


def _in_child(argv: Sequence[str], folder: Path, handles: Sequence[int], first: Callable[[], Any] | None) -> None:
    """Run the command and end the process, whatever happens; `first` comes before it, with signals held back."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a campaign that is stopped leaves none
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, handle in enumerate((os.open(os.devnull, os.O_RDONLY), *handles)):
            os.dup2(handle, number)
        os.chdir(folder)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if first is not None:
            first()
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
            _main(argv)
            code = 0
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:  # outside of the command
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(code & 255)
