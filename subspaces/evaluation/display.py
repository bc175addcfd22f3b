"""Progress bars."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from subspaces.text import printable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much (0: not known)."""


@contextmanager
def bars(wanted: bool | Progress, between: Callable[[], None] = lambda: None) -> Iterator[Progress]:
    """Yield a function of (what, done, total) that moves progress bars on standard error.

    With False there are no bars; a function of the caller is called instead of them. `between` is called after each
    step, and may raise to stop the work.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = Bars(*columns, console=Console(stderr=True), disable=wanted is not True)
    tasks: dict[str, TaskID] = {}

    def progress(what: str, done: int, total: int) -> None:
        if not isinstance(wanted, bool):
            wanted(what, done, total)
        else:
            if what not in tasks:
                shown.start()  # not earlier: a bar that never moves would leave an empty line
                tasks[what] = shown.add_task(printable(what), total=total)
            shown.update(tasks[what], completed=done, total=total)
        between()

    try:
        yield progress
    finally:
        if tasks:
            shown.stop()


def counted(progress: Progress, what: str, done: int, total: int) -> Callable[[int], None]:
    """Return a function that advances a progress bar, which starts at `done`, by a number of steps."""
    reached = done
    progress(what, reached, total)

    def tick(pieces: int) -> None:
        nonlocal reached
        reached += pieces
        progress(what, reached, total)

    return tick
