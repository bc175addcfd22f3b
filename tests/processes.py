"""Other processes that do the same work: real ones, forked from one that has imported everything."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["subspaces.experiments.studies", "subspaces.cli", "torch._dynamo"])
SECONDS = 100  # until a process that does not end is a failure


class Worker:
    """A process that calls a function; what it writes can be read line by line, its errors also in a file of theirs.

    Only one that may have `children` can start others, which may outlive it.
    """

    def __init__(
        self, target: Callable[..., None], *arguments: Any, errors: Path | None = None, children: bool = False
    ) -> None:
        reader, writer = CONTEXT.Pipe(duplex=False)
        self.resume = CONTEXT.Event()
        pause = Pause(self.resume)
        given = (writer, errors, target, pause, arguments)
        get_temp_dir()  # which it gets as well: one that is killed would leave its own
        self.process = CONTEXT.Process(target=_call, args=given, daemon=not children)
        self.process.start()
        writer.close()
        self.output = os.fdopen(os.dup(reader.fileno()))
        reader.close()

    @property
    def pid(self) -> int:
        return self.process.pid or 0

    def line(self) -> str:
        """Wait for the next line."""
        return self.output.readline()

    def end(self, code: int = 0) -> str:
        """Wait for the end, and return what was written before it."""
        with self.output:
            text = self.output.read()
        self.process.join(SECONDS)
        assert self.process.exitcode == code, text
        return text

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.end(-9)


class Pause:
    """Stops once, after some calls, until the test lets it go on; `Worker.line` then gives "there"."""

    def __init__(self, resume: Any) -> None:
        self.resume = resume
        self.calls = 0

    def __call__(self, after: int) -> None:
        self.calls += 1
        if self.calls == after:
            print("there", flush=True)
            assert self.resume.wait(SECONDS)


def types(pause: Pause, argv: Sequence[str], folder: Path, environment: Mapping[str, str], path: Sequence[str]) -> None:
    """Type a command in a folder, with these variables and these folders of installed packages."""
    from subspaces import cli

    os.chdir(folder)
    os.environ.update(environment)
    sys.path[:0] = path
    sys.argv = ["subspaces", *argv]
    cli.main()


def _call(
    writer: Connection, errors: Path | None, target: Callable[..., None], pause: Pause, arguments: tuple[Any, ...]
) -> None:
    for stream in (1, 2):
        os.dup2(writer.fileno(), stream)
    if errors is not None:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    target(pause, *arguments)
