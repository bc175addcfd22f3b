"""Tables on the screen or in a file, and what is said around them."""

import json
import sys
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from subspaces.training import Recipe


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


def show_json(path: Path) -> None:
    """Print a JSON file on one line."""
    typer.echo(json.dumps(json.loads(path.read_bytes())))


def closing(filled: Table, notes: list[str], files: list[Path], left_out: list[str]) -> None:
    """Print a table and its notes, and say what was written and what could not be."""
    show(filled)
    for note in notes:
        typer.echo(f"- {note}")
    typer.echo(f"wrote {', '.join(map(str, files))}")
    for reason in left_out:
        typer.echo(reason, err=True)


def show_plan(recipes: list[Recipe], out: Path, as_json: bool) -> None:
    """Print what would be done for each run."""
    from subspaces.studies.setting import plan

    planned = plan(recipes, out)
    if as_json:
        for run, state in planned:
            typer.echo(json.dumps({"run": run.folder.name, "folder": str(run.folder), "state": state}))
        return
    training = sum(state in ("to train", "to continue") for _, state in planned)
    caption = f"{training} of {len(planned)} runs would be trained; nothing was done"
    listed = table("recipe", "seed", "epochs", "state", "folder", caption=caption, numbers=("seed", "epochs"))
    for run, state in planned:
        one = run.recipe
        listed.add_row(escape(one.name), str(one.seed), str(one.epochs), state, escape(str(run.folder)))
    show(listed)
