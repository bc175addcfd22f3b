"""Commands in forked children of one process that has everything imported: 50 ms each instead of 3 s.

A child has a process group, a folder, files for its output, a limit of time and one of memory. (Linux only: pidfd.)
"""

import contextlib
import ctypes
import functools
import gc
import importlib
import os
import pkgutil
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 20.0  # of processor time; one that sleeps as long is asked once more
MEMORY = 3 << 30  # more than the warm process has
LARGE = 2 << 20  # bytes of a large page
COLLAPSE = 25  # MADV_COLLAPSE
LAZY = (  # what commands import when they need it
    "torch._dynamo",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_pdf",
    "matplotlib.style.core",
    "scipy.special",
    "typer._adapters",
    "plotly",
    "PIL.Image",
    "PIL.ImageOps",
)
STOPS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Ended:
    """How a command ended; a negative code is the signal that ended it."""

    code: int
    out: str
    err: str
    seconds: float
    hung: bool = False
    strays: bool = False  # processes that it left behind

    @property
    def lines(self) -> list[str]:
        """What it said on standard error."""
        return [line for line in self.err.splitlines() if line.strip()]


@dataclass(frozen=True)
class Kill:
    """A signal after so many seconds."""

    number: int
    after: float


def warm_up(home: Path) -> None:
    """Import all there is, and give commands a home of their own."""
    home.mkdir(parents=True, exist_ok=True)
    os.environ |= {"HOME": str(home), "SUBSPACES_COMMIT": "campaign", "COLUMNS": "200", "MPLBACKEND": "agg"}
    os.environ.setdefault("MPLCONFIGDIR", str(home))
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    import torch

    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    for name in LAZY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    import PIL.Image
    import typer

    import subspaces

    PIL.Image.init()
    for module in pkgutil.walk_packages(subspaces.__path__, "subspaces."):
        if not module.name.endswith(("__main__", "kernels")) and ".integrations." not in module.name:
            importlib.import_module(module.name)
    importlib.import_module("subspaces.experiments.data").load("digits")  # which a process reads once
    cli = importlib.import_module("subspaces.cli")
    cli.app = typer.main.get_command(cli.app)  # which every call would make anew
    cli.build = lambda: cli.app
    gc.collect()
    gc.freeze()  # pages that nobody touches are shared
    _use_large_pages()


def _use_large_pages() -> None:
    """Gather memory in large pages, which a fork copies in half the time; an older kernel leaves it as it is."""
    madvise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, _, *name = line.split()
        if rights == "rw-p" and name in ([], ["[heap]"]):
            begin, end = (int(address, 16) for address in place.split("-"))
            begin, end = -(-begin // LARGE) * LARGE, end // LARGE * LARGE
            if begin < end:
                madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), COLLAPSE)


def command(argv: Sequence[str], folder: Path, **options: Any) -> Ended:
    """Run `subspaces ARGV` in a forked child with this current folder."""
    return child(lambda: main(argv), folder, **options)


def main(argv: Sequence[str]) -> None:
    """Run the command line in this process."""
    from subspaces import cli

    sys.argv = ["subspaces", *argv]
    cli.main()


def together(lines: Sequence[Sequence[str]], folder: Path, first: Callable[[], None]) -> list[Ended]:
    """Run several commands at once in one folder."""
    children = [Child(functools.partial(main, argv), folder, first) for argv in lines]
    return [one.wait(len(lines) * SECONDS) for one in children]


def child(
    work: Callable[[], None],
    folder: Path,
    *,
    seconds: float = SECONDS,
    first: Callable[[], None] | None = None,
    kill: Kill | None = None,
    home: Path | None = None,
) -> Ended:
    """Call a function in a forked child; `first` comes before it, with signals held back."""
    return Child(work, folder, first, home).wait(seconds, kill)


class Child:
    """A forked child that has been started; several may run at once in one folder."""

    def __init__(
        self, work: Callable[[], None], folder: Path, first: Callable[[], None] | None = None, home: Path | None = None
    ) -> None:
        self.begin = time.monotonic()
        texts = (tempfile.mkstemp(prefix=f"{folder.name}.", dir=folder.parent) for _ in range(2))
        self.handles, self.paths = zip(*texts, strict=True)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _in_child(work, folder, self.handles, first, home)
        for handle in self.handles:
            os.close(handle)

    def wait(self, seconds: float = SECONDS, kill: Kill | None = None) -> Ended:
        """Wait for its end, and return what came of it."""
        code, hung, strays = _await(self.pid, seconds, kill)
        out, err = (Path(path).read_text(errors="replace") for path in self.paths)
        for path in self.paths:
            os.unlink(path)
        return Ended(code, out, err, time.monotonic() - self.begin, hung, strays)


def _in_child(
    work: Callable[[], None],
    folder: Path,
    handles: Sequence[int],
    first: Callable[[], None] | None,
    home: Path | None,
) -> None:
    """Do the work and end the process, whatever happens."""
    code = 1
    try:
        die_with_parent()
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, handle in enumerate(handles, 1):
            os.dup2(handle, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        if home is not None:
            home.mkdir(exist_ok=True)
            os.environ["HOME"] = str(home)
        limit = _virtual() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if first is not None:
            first()
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
            work()
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
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code & 255)


def die_with_parent() -> None:
    """Let this process be killed when the one that started it ends, so that a campaign that is stopped leaves none."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _virtual() -> int:
    """Return the bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _used(pid: int) -> float:
    """Return the seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _await(pid: int, seconds: float, kill: Kill | None) -> tuple[int, bool, bool]:
    """Wait for a process, send it a signal when its moment comes, and end what hangs or is left of it."""
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        ended = False
        if kill is not None:
            ended = bool(poll.poll(1000 * kill.after))
            if not ended:
                os.kill(pid, kill.number)
        hung, used = False, -1.0
        while not ended and not hung and not poll.poll(1000 * seconds):
            before, used = used, _used(pid)
            hung = used > seconds or used - before < 0.01 * seconds  # a busy machine is not a hang
        if hung:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(handle)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return code, hung, False
    return code, hung, True
