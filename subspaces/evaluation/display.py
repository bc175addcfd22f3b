"""How far it is: a progress bar for each thing that is measured."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from subspaces.evaluation.images import Progress
from subspaces.text import printable


@contextmanager
def bars(wanted: bool | Progress, between: Callable[[], None] = lambda: None) -> Iterator[Progress]:
    """Yield a function that is told what is measured, how much of it is done and how much there is of it.

    With True it moves bars on standard error, with False nothing; a function of the caller's is told the same. After
    each piece `between` is called, which may stop the work.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), disable=wanted is not True) as shown:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int) -> None:
            if not isinstance(wanted, bool):
                wanted(what, done, total)
            else:
                if what not in tasks:
                    tasks[what] = shown.add_task(printable(what), total=total)
                shown.update(tasks[what], completed=done, total=total)
            between()

        yield progress


def counted(progress: Progress, what: str, done: int, total: int) -> Callable[[int], None]:
    """Return a function that is told of each further piece; the first `done` of them are shown at once."""
    reached = done
    progress(what, reached, total)

    def tick(pieces: int) -> None:
        nonlocal reached
        reached += pieces
        progress(what, reached, total)

    return tick
