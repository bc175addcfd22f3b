"""What a person, or another program, sees of training while it runs."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, TextIO, get_args

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from subspaces.points import nearest
from subspaces.training.runs import Run

Mode = Literal["bar", "quiet", "json"]
Report = Callable[[Run, dict[str, Any]], None]
Tick = Callable[[Run, int], None]


@contextmanager
def display(
    runs: Sequence[Run], batches: int, mode: Mode, tensorboard: bool, stream: TextIO | None = None
) -> Iterator[tuple[Report, Tick]]:
    """Yield two functions: one for each epoch's row, one for each step of `batches` to an epoch."""
    if mode not in get_args(Mode):
        raise ValueError(f"show={mode!r}: {nearest(str(mode), get_args(Mode))}")
    with ExitStack() as stack:
        writers = {run: stack.enter_context(_tensorboard(run)) for run in runs} if tensorboard else {}
        bars = _Bars(runs, batches, stack) if mode == "bar" else None

        def report(run: Run, row: dict[str, Any]) -> None:
            if run in writers:
                writers[run](row)
            if bars is not None:
                bars.report(run, row)
            elif mode == "json":
                line = json.dumps({"run": run.folder.name, **row})
                (stream or sys.stdout).write(line + "\n")
                (stream or sys.stdout).flush()

        yield report, bars.tick if bars is not None else lambda run, steps: None


class _Bars:
    """A progress bar for each run, with the newest numbers and the time that is left."""

    def __init__(self, runs: Sequence[Run], batches: int, stack: ExitStack) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        self.progress = stack.enter_context(Progress(*columns, console=console, refresh_per_second=4))
        self.batches = batches
        self.tasks: dict[Run, TaskID] = {}
        for run in runs:
            done = len(run.log()) * batches
            total = run.recipe.epochs * batches
            self.tasks[run] = self.progress.add_task(self._title(run), total=total, completed=done)
        self.waiting = dict.fromkeys(runs, 0)

    @staticmethod
    def _title(run: Run) -> str:
        return f"{run.recipe.name} seed {run.recipe.seed}"

    def tick(self, run: Run, steps: int) -> None:
        self.waiting[run] += steps
        if self.waiting[run] >= 10:  # a bar that moves at every step would cost more than the step
            self.progress.advance(self.tasks[run], self.waiting[run])
            self.waiting[run] = 0

    def report(self, run: Run, row: dict[str, Any]) -> None:
        held_out = next((f", {key.split('_')[0]} {row[key]:.1%}" for key in row if key in HELD_OUT), "")
        numbers = f"epoch {row['epoch']}/{run.recipe.epochs}, loss {row['loss']:.3f}, train {row['train_accuracy']:.1%}"
        self.progress.update(self.tasks[run], description=f"{self._title(run)}: {numbers}{held_out}")


HELD_OUT = ("validation_accuracy", "test_accuracy")


@contextmanager
def _tensorboard(run: Run) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that writes a row of the log for TensorBoard; it does nothing where that is missing."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield lambda row: None
        return
    # What an interrupted run wrote after its last checkpoint comes again.
    writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=len(run.log()) + 1)

    def write(row: dict[str, Any]) -> None:
        for name, value in row.items():
            if name != "epoch":
                writer.add_scalar(name, value, row["epoch"])

    try:
        yield write
    finally:
        writer.close()
