"""How far it is: a progress bar for each thing that is measured."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from subspaces.data.dataset import Progress
from subspaces.training.signals import Stop


@contextmanager
def bars(wanted: bool | Progress) -> Iterator[Progress]:
    """Yield a function that is told what is measured, how much of it is done and how much there is of it.

    With True it moves bars on standard error, with False nothing; a function of the caller's is passed through.
    """
    if not isinstance(wanted, bool):
        yield wanted
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), disable=not wanted) as shown:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(what, total=total)
            shown.update(tasks[what], completed=done, total=total)

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


def heeding(stop: Stop, progress: Progress, what: str, done: int, total: int) -> None:
    """Tell how far it is, and stop if that was asked for."""
    progress(what, done, total)
    stop.heed()
