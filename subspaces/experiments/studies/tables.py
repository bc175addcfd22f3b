"""The rows of every table, and a result in all its forms, written at once: JSON, CSV, Markdown and figure."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from subspaces.core import storage
from subspaces.evaluation import comparing, statistics
from subspaces.evaluation.comparing import Group, GroupAnswer, each_answer
from subspaces.evaluation.files import write_plain_json
from subspaces.evaluation.metrics import Metric, of_task
from subspaces.evaluation.statistics import Difference, Spread
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run, RunError
from subspaces.reports.figures import FORMATS

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Entry(GroupAnswer):
    """One answer of a method over the seeds, and what it costs.

    Costs are in network-steps: one batch forward and backward through one network in training, and in networks that
    see each image at test time.
    """

    recipe: Recipe  # with the first seed
    held_out: "pd.DataFrame"  # the same as `frame` on held-out images, empty where there are none
    steps: float

    @property
    def method(self) -> str:
        """The method in words."""
        return self.group.label

    @property
    def named(self) -> str:
        """The method and its answer."""
        return f"{self.method}, {self.words}"

    @property
    def count(self) -> int:
        """Over how many seeds it is, or ensembles of several."""
        return len(self.frame)

    def spread(self, metric: str, split: str = "test") -> Spread:
        """Return a metric over the seeds."""
        return super().spread(metric) if split == "test" else replace(self, frame=self.held_out).spread(metric)

    def by_seed(self, metric: str) -> dict[int, float]:
        """Return a metric by the first seed of each row."""
        return {seeds[0]: value for seeds, value in self.by_seeds(metric).items()}

    def against(self, reference: "Entry | None", metric: str) -> Difference | None:
        """Return the difference to the reference, paired by the seed; None for itself, or where that lacks a seed."""
        if reference is None or self is reference:
            return None
        found = statistics.compare(self.frame, reference.frame, metric)
        return found.difference if found is not None and found.seeds == self.seeds else None

    def relative_cost(self, reference: "Entry | None") -> float | None:
        """Return how many times the network-steps of the reference training takes."""
        return None if reference is None else self.steps / reference.steps

    def cells(self, reference: "Entry | None") -> list[str]:
        """Return the text of every metric, with the difference to the reference on a line of its own."""
        found = []
        for each in headlines():
            difference = self.against(reference, each.name)
            unit = each.scale, each.digits
            below = "" if difference is None else f"\n{statistics.shown_difference(difference, *unit)}"
            found.append(statistics.shown(self.spread(each.name), *unit) + below)
        return found

    def metrics(self, reference: "Entry | None") -> dict[str, dict[str, Any]]:
        """Return every metric over the seeds with its difference to the reference, for a JSON file."""
        found = {each.name: self.against(reference, each.name) for each in headlines()}
        return {
            name: {**asdict(self.spread(name)), "difference": None if each is None else asdict(each)}
            for name, each in found.items()
        }


def headlines() -> list[Metric]:
    """Return the metrics of a short table, also those that were added to the package's own."""
    return [each for each in of_task("classification") if each.headline]


def entries_of(group: Group, recipe: Recipe, splits: Sequence[str], images: int, scaled: bool = False) -> list[Entry]:
    """Return the answers of the runs of a recipe that were trained on so many images, the method's own first.

    Then come these after temperature scaling, where that is asked for and held-out images have fitted a temperature,
    and the group's ensembles of runs.
    """
    for one in group.evaluations:
        for split, wanted in itertools.product(splits, group.evaluations[0].answers):
            if one.answer(wanted.name, split) is None:
                folder = comparing.place(one)
                raise RunError(f"{folder} has no {wanted.words} on {split!r}: run `subspaces evaluate {folder}`")
    steps = recipe.epochs * -(-images // recipe.batch) * recipe.training_cost
    others = [comparing.answers(group, split, scaled=scaled, together=True) for split in splits if split != "test"]
    found = []
    for each in each_answer(group, scaled=scaled, together=True):
        held_out = others[0][others[0]["words"] == each.words] if others else each.frame.iloc[:0]
        found.append(Entry(**vars(each), recipe=recipe, held_out=held_out, steps=each.runs * steps))
    return found


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
