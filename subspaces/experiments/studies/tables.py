"""A result in all its forms, written at once: JSON, CSV, Markdown and figure."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from subspaces.core import storage
from subspaces.evaluation.files import write_plain_json
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run
from subspaces.reports.figures import FORMATS

if TYPE_CHECKING:
    import matplotlib.figure

Drawing: TypeAlias = "matplotlib.figure.Figure | None"
Made = tuple[list[Path], list[str]]
"""The files that were made, and what could not be made and why."""
R = TypeVar("R", bound="Result")
NEEDED = "figures need matplotlib: pip install 'subspaces[figures]'"


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


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a comparison or a study found; once it is written, which files were made and what could not be."""

    name: str  # of the files, without an ending
    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def tables(self) -> list[Table]:
        """Return the tables; the first stands above the notes."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """Return what a reader has to know to judge the numbers."""
        raise NotImplementedError

    def summary(self) -> dict[str, Any]:
        """Return everything, for a JSON file; the same runs give the same."""
        raise NotImplementedError

    def rows(self, summary: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of each CSV file by its name, of the summary that is the JSON file."""
        raise NotImplementedError

    def draw(self) -> Drawing:
        """Draw the result; None where there is nothing to draw."""
        raise NotImplementedError

    def markdown(self) -> str:
        """Return the tables with their notes."""
        first, *others = [table.markdown() for table in self.tables()]
        return "\n".join([first, "", *(f"- {note}" for note in self.notes()), "", *(f"{one}\n\n" for one in others)])

    def write(self: R, folder: Path) -> R:
        """Write all forms, and return the result with what was made; numbers are there also where nothing is drawn."""
        import pandas as pd

        path = folder / self.name
        summary = self.summary()
        rows = {folder / f"{name}.csv": [*map(flat, some)] for name, some in self.rows(summary).items()}
        texts = {place: pd.DataFrame(some).to_csv(index=False) for place, some in rows.items()}
        texts[path.with_suffix(".md")] = self.markdown()
        write_plain_json(path.with_suffix(".json"), summary)
        for place, content in texts.items():
            storage.write(place, content.encode())
        drawn, left_out = attempt("figure", lambda: write_figure(self.draw(), path))
        for place in {path.with_suffix(ending) for ending in FORMATS} - set(drawn):
            place.unlink(missing_ok=True)  # of an earlier table
        return dataclasses.replace(self, files=[path.with_suffix(".json"), *texts, *drawn], left_out=left_out)


def flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of a JSON file as the row of a CSV file: numbers in full, without lists and recipes."""
    row: dict[str, Any] = {}
    for name, value in entry.items():
        if isinstance(value, Mapping) and name != "recipe":
            row |= {part if name == "metrics" else f"{name}_{part}": each for part, each in flat(value).items()}
        elif not isinstance(value, (list, Mapping)) and name != "difference":  # which is None
            row[name] = value
    return row


def write_figure(drawing: Drawing, path: Path) -> list[Path]:
    """Write a figure as PNG and PDF."""
    if drawing is None:
        return []
    from subspaces.reports.figures import style

    style.settle(drawing)
    made = [path.with_suffix(ending) for ending in FORMATS]
    for one in made:
        style.save(drawing, one)
    return made


def attempt(what: str, make: Callable[[], list[Path]]) -> Made:
    """Make some files, or say which package is missing for them."""
    try:
        return make(), []
    except ImportError as error:  # the numbers are there nevertheless
        missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "matplotlib"
        return [], [f"no {what}: {NEEDED if missing else error}"]


def named_seeds(seeds: Sequence[int]) -> str:
    """Return seeds in words."""
    return f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"


def without_seed(recipe: Recipe) -> dict[str, Any]:
    """Return what runs of one recipe have in common, for a JSON file."""
    return {name: value for name, value in recipe.to_dict().items() if name != "seed"}


def environments(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Return every environment in which a run was started, once, without times and in an order of their own."""
    found = set()
    for start in (start for run in runs for start in run.starts()):
        versions = {name: start.get(name) for name in ("commit", "hardware", "torch", "python", "subspaces")}
        used = {name: start.get("execution", {}).get(name) for name in ("device", "precision")}
        found.add(json.dumps({**versions, **used}))
    return [json.loads(text) for text in sorted(found)]
