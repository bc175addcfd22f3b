"""Tables on the screen or in a file."""

import sys

from rich import box
from rich.console import Console
from rich.table import Table


def table(*columns: str, title: str = "", caption: str = "", names: str = "", numbers: tuple[str, ...] = ()) -> Table:
    """Return an empty table; the column `names` is never folded, `numbers` are flush right."""
    empty = Table(title=title or None, caption=caption or None, box=box.SIMPLE_HEAD)
    for column in columns:
        right = column in numbers
        empty.add_column(
            column, justify="right" if right else "left", no_wrap=right or column == names, overflow="fold"
        )
    return empty


def show(filled: Table) -> None:
    """Print a table; a file or a pipe has no width that it must fit."""
    Console(width=None if sys.stdout.isatty() else 240).print(filled)
