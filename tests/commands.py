"""Commands as a user types them, run in this process."""

import contextlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from subspaces.cli import main


@dataclass
class Result:
    """What a command printed, and how it ended."""

    stdout: str
    stderr: str
    exit_code: int
    exception: BaseException | None

    @property
    def output(self) -> str:
        """Everything that it printed."""
        return self.stdout + self.stderr


class _Text(io.TextIOWrapper):
    """A text file in memory, with bytes beneath as those of a process have."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined]


def call(*arguments: object, env: Mapping[str, str] | None = None) -> Result:
    """Run a command; an error that is a traceback for the user is the result's exception."""
    out, err = _Text(), _Text()
    raised: BaseException | None = None
    with _environment(env or {}), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as ended:
            code, raised = int(ended.code or 0), ended
        except Exception as error:
            code, raised = 1, error
    return Result(out.text(), err.text(), code, raised if code else None)


@contextlib.contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changes.items():
            patch.setitem(os.environ, name, value)
        yield


class CliRunner:
    """Runs commands."""

    def invoke(
        self, app: object, arguments: Sequence[object] = (), env: Mapping[str, str] | None = None, prog_name: str = ""
    ) -> Result:
        """Run a command."""
        return call(*arguments, env=env)
