"""How far it is: a progress bar for each thing that is measured."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from subspaces.text import printable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much (0: not known)."""


@contextmanager
def bars(wanted: bool | Progress, between: Callable[[], None] = lambda: None) -> Iterator[Progress]:
    """Yield a function that is told what is measured, how much of it is done and how much there is of it.

    With True it moves bars on standard error, with False nothing; a function of the caller's is told the same. After
    each piece `between` is called, which may stop the work.
    """
    with _drawn(wanted) if isinstance(wanted, bool) else nullcontext(wanted) as show:

        def progress(what: str, done: int, total: int) -> None:
            show(what, done, total)
            between()

        yield progress


@contextmanager
def _drawn(wanted: bool) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), disable=not wanted) as shown:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(printable(what), total=total)
            shown.update(tasks[what], completed=done, total=total)

        yield show


def counted(progress: Progress, what: str, done: int, total: int) -> Callable[[int], None]:
    """Return a function that is told of each further piece; the first `done` of them are shown at once."""
    reached = done
    progress(what, reached, total)

    def tick(pieces: int) -> None:
        nonlocal reached
        reached += pieces
        progress(what, reached, total)

    return tick
