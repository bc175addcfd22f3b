"""Tables on the screen or in a file, and what is said around them."""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, ConsoleOptions
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from subspaces.experiments.training import Recipe
from subspaces.text import printable

if TYPE_CHECKING:
    from subspaces.experiments.studies import tables

LEAST = 9  # of a column of words
ENDLESS = 10**5


def table(*columns: str, title: str = "", caption: str = "", names: str = "", numbers: Sequence[str] = ()) -> Table:
    """Return an empty table; the column `names` is never folded, `numbers` are flush right, and none is left out."""
    empty = Table(title=title or None, caption=caption or None, box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    for column in columns:
        folded = {"no_wrap": column == names, "overflow": "fold"}
        if column in numbers:
            empty.add_column(f"  {column}", justify="right", **folded)  # type: ignore[arg-type]
        else:
            empty.add_column(column, min_width=LEAST, **folded)  # type: ignore[arg-type]
    return empty


def add_row(filled: Table, *cells: object) -> None:
    """Add a row of plain text."""
    filled.add_row(*(escape(str(cell)) for cell in cells))


def show(filled: Table) -> None:
    """Print a table as wide as the terminal, or as COLUMNS says; a file or a pipe has no width that it must fit."""
    Console(width=_width()).print(_Escaped(filled))


def as_text(filled: Table) -> str:
    """Return a table as text, as wide as `show` prints it."""
    console = Console(width=_width())
    with console.capture() as captured:
        console.print(_Escaped(filled))
    return captured.get()


def echo(text: str, err: bool = False) -> None:
    """Print one line for people."""
    print(printable(text), file=sys.stderr if err else sys.stdout)


class _Escaped:
    """A table whose cells may hold names of files and classes: what a terminal would obey is printed as an escape."""

    def __init__(self, content: Table) -> None:
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self.content, options):
            yield Segment("\n".join(map(printable, text.split("\n"))), style, control)


def _width() -> int:
    fitted = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console().width if fitted else ENDLESS


def show_table(given: "tables.Table") -> None:
    """Print a table of a study; where it is narrow, numbers fold at spaces."""
    filled = table(*given.columns, title=escape(given.title), numbers=given.columns[given.left :])
    for row in given.rows:
        add_row(filled, *row)
    show(filled)


def show_result(made: "tables.Result", shown: "Sequence[tables.Table]", notes: Sequence[str] = ()) -> None:
    """Print tables and notes of a comparison, a study or a figure, and the files that were made of it."""
    for one in shown:
        show_table(one)
    for note in notes:
        echo(f"- {note}")
    echo(f"wrote {', '.join(map(str, made.files))}")
    for reason in made.left_out:
        echo(reason, err=True)


def show_plan(recipes: list[Recipe], folder: Path) -> None:
    """Print what would be done for each run."""
    from subspaces.experiments.studies.setting import states

    planned = states(recipes, folder)
    training = sum(state in ("to train", "to continue") for _, state in planned)
    caption = f"{training} of {len(planned)} runs would be trained; nothing was done"
    listed = table("epochs", "state", "folder", caption=caption, names="folder", numbers=("epochs",))
    for run, state in planned:
        add_row(listed, run.recipe.epochs, state, run.folder)
    show(listed)
