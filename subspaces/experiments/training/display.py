"""What a person, or another program, sees of training while it runs."""

import io
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from subspaces.core import checks, storage
from subspaces.errors import ArgumentError
from subspaces.experiments.training.runs import Run
from subspaces.text import nearest, printable

Mode = Literal["bar", "quiet", "json"]
HELD_OUT = ("validation_accuracy", "test_accuracy")


class Display:
    """Shows runs: `begin` when one starts or continues, `tick` for its steps and `report` for each epoch's row."""

    def __init__(self, mode: Mode = "quiet", tensorboard: bool = False, bars: Progress | None = None) -> None:
        self.mode, self.tensorboard, self.bars = mode, tensorboard, bars
        self.tasks: dict[Run | str, TaskID] = {}
        self.waiting: dict[Run, int] = {}  # steps that the bars do not show yet
        self.writers: dict[Run, Callable[[dict[str, Any]], None]] = {}

    def begin(self, run: Run, epoch: int, done: int, batches: int) -> None:
        """Show a run that has so many epochs behind it, and so many of the batches of the next."""
        if self.tensorboard:
            self.writers[run] = _tensorboard(run, epoch)
        if self.bars is not None:
            behind, total = epoch * batches + done, run.recipe.epochs * batches
            self._add(run, self.bars, _title(run), total=total, completed=behind)
            self.waiting[run] = 0

    def progress(self, what: str, done: int, total: int) -> None:
        """Show how much of something is done, of how much (0: not known)."""
        if self.bars is not None:
            if what not in self.tasks:
                self._add(what, self.bars, printable(what))
            self.bars.update(self.tasks[what], completed=done, total=total or None)

    def _add(self, what: Run | str, bars: Progress, title: str, **size: Any) -> None:
        bars.start()  # not earlier: bars without a task would leave an empty line
        self.tasks[what] = bars.add_task(title, **size)

    def tick(self, run: Run, steps: int) -> None:
        """Show that a run has taken steps."""
        if self.bars is not None:
            self.waiting[run] += steps
            if self.waiting[run] >= 10:  # a bar that moves at every step would cost more than the step
                self._move(run, self.bars)

    def _move(self, run: Run, bars: Progress) -> None:
        bars.advance(self.tasks[run], self.waiting[run])
        self.waiting[run] = 0

    def report(self, run: Run, row: dict[str, Any]) -> None:
        """Show the row of an epoch."""
        if run in self.writers:
            self.writers[run](row)
        if self.bars is not None:
            self._move(run, self.bars)
            held_out = next((f", {key.split('_')[0]} {row[key]:.1%}" for key in row if key in HELD_OUT), "")
            numbers = f"loss {row['loss']:.3f}, train {row['train_accuracy']:.1%}{held_out}"
            title = f"{_title(run)}: epoch {row['epoch']}/{run.recipe.epochs}, {numbers}"
            self.bars.update(self.tasks[run], description=title)
        elif self.mode == "json":
            sys.stdout.write(json.dumps({"run": run.folder.name, **row}) + "\n")
            sys.stdout.flush()


def _title(run: Run) -> str:
    return printable(f"{run.recipe.name} seed {run.recipe.seed}")


def check_mode(mode: Any) -> None:
    """Refuse a way of showing progress that there is not."""
    if not isinstance(mode, str) or mode not in get_args(Mode):
        raise ArgumentError(f"show={checks.shown(mode)}: {nearest(mode, get_args(Mode))}")


@contextmanager
def display(mode: Mode, tensorboard: bool = False) -> Iterator[Display]:
    """Yield what shows runs."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=Console(stderr=True), refresh_per_second=4) if mode == "bar" else None
    shown = Display(mode, tensorboard, bars)
    try:
        yield shown
    finally:
        if bars is not None and shown.tasks:
            bars.stop()


def _tensorboard(run: Run, epoch: int) -> Callable[[dict[str, Any]], None]:
    """Return a function that writes a row of the log for TensorBoard; it does nothing where that is missing.

    The rows are written here, not by a thread of TensorBoard's, whose errors name no file.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        return lambda row: None
    folder = run.folder / "tensorboard"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"

    def append(**content: Any) -> None:
        record = io.BytesIO()
        RecordWriter(record).write(Event(wall_time=time.time(), **content).SerializeToString())
        with storage.naming(path), open(path, "ab") as file:
            file.write(record.getvalue())

    def write(row: dict[str, Any]) -> None:
        numbers = [Summary.Value(tag=name, simple_value=value) for name, value in row.items() if name != "epoch"]
        append(step=row["epoch"], summary=Summary(value=numbers))

    append(file_version="brain.Event:2")
    # What an interrupted run wrote after its last checkpoint comes again.
    append(step=epoch + 1, session_log=SessionLog(status=SessionLog.START))
    return write
