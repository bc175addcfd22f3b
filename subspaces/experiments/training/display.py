"""What a person, or another program, sees of training while it runs."""

import json
import sys
from typing import Any, Literal, Self, get_args

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.experiments.training.runs import Run
from subspaces.text import nearest, printable

Mode = Literal["bar", "quiet", "json"]
HELD_OUT = ("validation_accuracy", "test_accuracy")


class Display:
    """Shows runs: `begin` when one starts or continues, `tick` for its steps and `report` for each epoch's row."""

    def __init__(self, mode: Mode = "quiet") -> None:
        self.mode = mode
        self.bars: Progress | None = None
        self.tasks: dict[Run | str, TaskID] = {}
        if mode == "bar":
            title = TextColumn("{task.description}", markup=False)
            columns = (title, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self.bars = Progress(*columns, console=Console(stderr=True), refresh_per_second=4)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bars is not None and self.tasks:
            self.bars.stop()

    def begin(self, run: Run, epoch: int, done: int, batches: int) -> None:
        """Show a run that has so many epochs behind it, and so many of the batches of the next."""
        if self.bars is not None:
            behind, total = epoch * batches + done, run.recipe.epochs * batches
            self.bars.start()  # not earlier: bars without a task would leave an empty line
            self.tasks[run] = self.bars.add_task(_title(run), total=total, completed=behind)

    def progress(self, what: str, done: int, total: int) -> None:
        """Show how much of something is done, of how much (0: not known)."""
        if self.bars is not None:
            if what not in self.tasks:
                self.bars.start()
                self.tasks[what] = self.bars.add_task(printable(what))
            self.bars.update(self.tasks[what], completed=done, total=total or None)

    def tick(self, run: Run, steps: int) -> None:
        """Show that a run has taken steps."""
        if self.bars is not None:
            self.bars.advance(self.tasks[run], steps)

    def report(self, run: Run, row: dict[str, Any]) -> None:
        """Show the row of an epoch."""
        if self.bars is not None:
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
