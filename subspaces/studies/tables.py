"""A table in all its forms, written at once: JSON, CSV, Markdown and figure; and what is said around it."""

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from subspaces import files
from subspaces.training.recipe import Recipe
from subspaces.training.runs import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Made = tuple[list[Path], list[str]]
"""The files that were made, and what could not be made and why."""
R = TypeVar("R", bound="Result")


@dataclass(frozen=True)
class Table:
    """Rows of text below a title and the names of columns, of which the first are flush left."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 0

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rule = ["---"] * self.left + ["---:"] * (len(self.columns) - self.left)
        return "\n".join([f"# {self.title}", "", *map(_line, (self.columns, rule, *self.rows))])


def _line(texts: Sequence[str]) -> str:
    cells = (text.replace("|", r"\|").replace("\n", "<br>") for text in texts)
    return f"| {' | '.join(cells)} |"


@dataclass(frozen=True)
class Sheet:
    """Everything that is written of one result.

    Args:
        name: of the files, without an ending.
        tables: the first stands above the notes.
        notes: what a reader has to know to judge the numbers.
        summary: everything, for the JSON file; the same runs give the same.
        rows: of each CSV file by its name, with numbers in full and shares as fractions.
        draw: draws the result, if there is something to draw.
        undrawn: why there is nothing to draw.
    """

    name: str
    tables: list[Table]
    notes: list[str]
    summary: dict[str, Any]
    rows: dict[str, list[dict[str, Any]]]
    draw: "Callable[[], Figure] | None" = None
    undrawn: str = ""

    def markdown(self) -> str:
        """Return the tables with their notes."""
        first, *others = [table.markdown() for table in self.tables]
        return "\n".join([first, "", *(f"- {note}" for note in self.notes), "", *(f"{one}\n\n" for one in others)])

    def write(self, folder: Path) -> Made:
        """Write all forms; the numbers are there also where they cannot be drawn."""
        path = folder / self.name
        texts = {path.with_name(f"{name}.csv"): rows_as_csv(rows) for name, rows in self.rows.items()}
        texts[path.with_suffix(".md")] = self.markdown()
        files.write_json(path.with_suffix(".json"), self.summary)
        for place, content in texts.items():
            files.write(place, content.encode())
        drawn, left_out = ([], [self.undrawn] if self.undrawn else []) if self.draw is None else _draw(self.draw, path)
        for place in {path.with_suffix(ending) for ending in (".png", ".pdf")} - set(drawn):
            place.unlink(missing_ok=True)  # of an earlier table
        return [path.with_suffix(".json"), *texts, *drawn], left_out


def _draw(draw: "Callable[[], Figure]", path: Path) -> Made:
    def make() -> list[Path]:
        try:
            return write_figure(draw(), path)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "matplotlib":
                raise
            raise ImportError("figures need matplotlib: pip install 'subspaces[figures]'") from None

    return attempt("figure", make)


def write_figure(figure: "Figure", path: Path) -> list[Path]:
    """Write a figure as PNG and PDF."""
    from subspaces.reports.figures import style

    style.settle(figure)
    made = [path.with_suffix(ending) for ending in (".png", ".pdf")]
    for one in made:
        style.save(figure, one)
    return made


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a comparison or a study found, and, once it is written, what was and what could not be made."""

    sheet: Sheet | None = None
    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def tabulate(self) -> Sheet:
        """Return everything that is to be written."""
        raise NotImplementedError

    def write(self: R, folder: Path) -> R:
        """Write everything, and return the result with what was made of it."""
        sheet = self.tabulate()
        made, left_out = sheet.write(folder)
        return dataclasses.replace(self, sheet=sheet, files=made, left_out=left_out)


def attempt(what: str, make: Callable[[], list[Path]]) -> Made:
    """Make some files, or say which package is missing for them."""
    try:
        return make(), []
    except ImportError as error:  # the numbers are there nevertheless
        return [], [f"no {what}: {error}"]


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


def named_seeds(seeds: Sequence[int]) -> str:
    """Return seeds in words."""
    return f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"


def without_seed(recipe: Recipe) -> dict[str, Any]:
    """Return what runs of one recipe have in common, for a JSON file."""
    return {name: value for name, value in recipe.to_dict().items() if name != "seed"}


def started(run: Run) -> dict[str, Any]:
    """Return where and with what a run was trained, the last time that it was started."""
    names = ("hardware", "torch", "subspaces", "commit")
    return {"run": run.folder.name, **{name: run.starts()[-1].get(name) for name in names}}


def environments(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Return every environment in which a run was started, once, without times and in an order of their own."""
    found = {json.dumps(_environment(start)) for run in runs for start in run.starts()}
    return [json.loads(text) for text in sorted(found)]


def _environment(start: dict[str, Any]) -> dict[str, Any]:
    execution = start.get("execution", {})
    versions = {name: start.get(name) for name in ("commit", "hardware", "torch", "python", "subspaces")}
    return {**versions, "device": execution.get("device"), "precision": execution.get("precision")}


def rows_as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows with the same columns as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
