"""A table in all its forms: JSON, CSV, Markdown and figure."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subspaces import files
from subspaces.training.config import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Made = tuple[list[Path], list[str]]
"""The files that were made, and what could not be made and why."""


def write(
    path: Path, summary: Any, csvs: Mapping[str, str], text: str, figure: "Callable[[], Figure] | None" = None
) -> Made:
    """Write a table in every form.

    Args:
        path: where to, without an ending.
        summary: everything, for the JSON file.
        csvs: the text of each CSV file, by its name without the ending.
        text: the Markdown.
        figure: draws the table, if there is something to draw; the numbers are there also where it cannot.
    """
    texts = {path.with_name(f"{name}.csv"): content for name, content in csvs.items()}
    texts[path.with_suffix(".md")] = text
    files.write_json(path.with_suffix(".json"), summary)
    for place, content in texts.items():
        files.write(place, content.encode())
    drawn, left_out = ([], []) if figure is None else attempt("figure", lambda: _draw(figure, path))
    for place in {path.with_suffix(ending) for ending in (".png", ".pdf")} - set(drawn):
        place.unlink(missing_ok=True)  # of an earlier table
    return [path.with_suffix(".json"), *texts, *drawn], left_out


def attempt(what: str, make: Callable[[], list[Path]]) -> Made:
    """Make some files, or say which package is missing for them."""
    try:
        return make(), []
    except ImportError as error:  # the numbers are there nevertheless
        return [], [f"no {what}: {error}"]


def _draw(figure: "Callable[[], Figure]", path: Path) -> list[Path]:
    try:
        from subspaces.studies import figures

        return figures.write(figure(), path)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ImportError("figures need matplotlib: pip install 'subspaces[figures]'") from None


def heading(recipes: Iterable[Recipe], images: int, told: str = "", noise: float = 0.0) -> str:
    """Return what all recipes share, for a title.

    Args:
        recipes: of all methods, on the same data; their network is named if it is one.
        images: how many test images there are.
        told: what the table is about, where that is more than the methods.
        noise: the label noise, where it is one level.
    """
    found = list(recipes)
    level = f", {100 * noise:g} % label noise" if noise else ""
    networks = {recipe.network for recipe in found}
    network = networks.pop() if len(networks) == 1 else ""
    parts = (f"{found[0].dataset}{level}", network, told, f"{images:,} test images")
    return " · ".join(part for part in parts if part)


def rows_as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows with the same columns as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def markdown(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[str], left: int) -> str:
    """Return a table whose first columns are flush left, with a title and notes."""
    rule = ["---"] * left + ["---:"] * (len(columns) - left)
    lines = [f"# {title}", "", _line(columns), _line(rule), *map(_line, rows)]
    return "\n".join([*lines, "", *(f"- {note}" for note in below), ""])


def _line(texts: Sequence[str]) -> str:
    cells = (text.replace("|", r"\|").replace("\n", "<br>") for text in texts)
    return f"| {' | '.join(cells)} |"
