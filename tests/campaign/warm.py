"""Commands in forked children of one process that has everything imported: 50 ms each instead of 3 s.

A child has a process group, a folder, files for its output, a limit of time and one of memory. (Linux only: pidfd.)
"""

import contextlib
import gc
import importlib
import os
import pkgutil
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 20.0
MEMORY = 3 << 30  # more than the warm process has
LAZY = (  # what commands import when they need it
    "torch._dynamo",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_pdf",
    "matplotlib.style.core",
    "scipy.stats",
    "sklearn.datasets",
    "torchmetrics",
    "typer._adapters",
    "plotly",
    "PIL.Image",
    "PIL.ImageOps",
)
STOPS = (signal.SIGINT, signal.SIGTERM)
MAIN = "import sys; sys.argv[0] = 'subspaces'; from subspaces.cli import main; main()"


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
        if not module.name.endswith(("__main__", "kernels")):
            importlib.import_module(module.name)
    cli = importlib.import_module("subspaces.cli")
    cli.app = typer.main.get_command(cli.app)  # which every call would make anew
    gc.collect()
    gc.freeze()  # pages that nobody touches are shared


def command(argv: Sequence[str], folder: Path, **options: Any) -> Ended:
    """Run `subspaces ARGV` in a forked child with this current folder."""

    def run() -> None:
        from subspaces import cli

        sys.argv = ["subspaces", *argv]
        cli.main()

    return child(run, folder, **options)


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
    out, err = folder.with_name(f"{folder.name}.out"), folder.with_name(f"{folder.name}.err")
    sys.stdout.flush()
    sys.stderr.flush()
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _in_child(work, folder, out, err, first, home)
    code, hung, strays = _await(pid, seconds, kill)
    texts = [path.read_text(errors="replace") for path in (out, err)]
    for path in (out, err):
        path.unlink()
    return Ended(code, *texts, time.monotonic() - begin, hung, strays)


def _in_child(
    work: Callable[[], None],
    folder: Path,
    out: Path,
    err: Path,
    first: Callable[[], None] | None,
    home: Path | None,
) -> None:
    """Do the work and end the process, whatever happens."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
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


def _virtual() -> int:
    """Return the bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


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
        hung = not ended and not poll.poll(1000 * seconds)
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


def process(argv: Sequence[str], folder: Path, *, prepare: str = "", kill: Kill | None = None) -> Ended:
    """Run `subspaces ARGV` in a process of its own, as from a shell; a signal comes so long after its first output."""
    begin = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-P", "-c", prepare + MAIN, *argv],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        process_group=0,
    ) as running:
        assert running.stdout is not None
        start, hung = "", False
        if kill is not None:
            start = running.stdout.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(kill.after)
            running.send_signal(kill.number)
        try:
            out, err = running.communicate(timeout=3 * SECONDS)
        except subprocess.TimeoutExpired:
            hung = True
            running.kill()
            out, err = running.communicate()
    return Ended(running.returncode, start + out, err, time.monotonic() - begin, hung)
