"""Methods compared on equal terms: the call behind `subspaces compare`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subspaces import data as datasets
from subspaces import files, values
from subspaces.evaluation import Record, evaluate
from subspaces.evaluation.dropout import PASSES, evaluate_dropout
from subspaces.evaluation.together import evaluate_together
from subspaces.report.reading import Group, gather
from subspaces.studies.entries import Entry, disjoint, entries_of, entry_of_ensembles
from subspaces.studies.setting import (
    Folder,
    OneRecipe,
    Setting,
    check,
    independent,
    prepared,
    reference_of,
    same,
    several,
)
from subspaces.training import train
from subspaces.training.config import Recipe
from subspaces.training.display import Mode
from subspaces.training.runs import Run


@dataclass(frozen=True)
class Comparison:
    """Methods on the same data with the same seeds, and the one that they are compared with."""

    entries: list[Entry]
    reference: Entry | None
    runs: list[Run]
    training_images: int
    test_images: int
    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # what could not be made, and why

    @property
    def recipe(self) -> Recipe:
        """One of the recipes, for what all of them share."""
        return self.entries[0].recipe

    @property
    def seeds(self) -> list[int]:
        """All seeds."""
        return sorted({run.recipe.seed for run in self.runs})


def compare(
    recipe: OneRecipe | Sequence[OneRecipe],
    *,
    seeds: Sequence[int] | None = None,
    ensembles: Sequence[int] | None = None,
    reference: OneRecipe | None = None,
    dropout_passes: int = PASSES,
    data: Folder | None = None,
    out: Folder = "runs",
    to: Folder = "comparison",
    show: Mode = "bar",
    tensorboard: bool = True,
    **changes: Any,
) -> Comparison:
    """Train and evaluate what is missing of several methods, and write one table of them all.

    Everything is decided by the recipes and seeds: nothing is trained or measured twice, and what was interrupted
    continues. Beside the table (comparison.json, .csv, .md) there are a figure and the report page.

    Args:
        recipe: the methods: recipes or names of them, all on the same data.
        seeds: train each recipe once for each of these instead of its own seed.
        ensembles: also measure ensembles of so many independent standard runs; by default of two, where there are two.
        reference: the recipe that others are compared with; by default the first standard one.
        dropout_passes: how often a network with dropout is asked for MC-dropout.
        data: the folder with the data sets; by default `data`.
        out: the folder for the runs.
        to: the folder for the table, the figure and the page.
        show: "bar" for progress bars, "json" for a line per epoch on standard output, "quiet".
        tensorboard: also write the log for TensorBoard, where that is installed.
        changes: any field of `Recipe` or `Execution` to set for all of them.

    Example:
        >>> comparison = ss.compare(["digits-standard", "digits-line"], seeds=[0, 1], epochs=20)
        >>> {entry.name: entry.values("accuracy") for entry in comparison.entries}
    """
    from subspaces.studies import tables

    recipes, execution = prepared(recipe, seeds, changes)
    chosen = reference_of(recipes, reference)
    setting = Setting(
        out=values.folder("out", out),
        to=values.folder("to", to),
        data=None if data is None else values.folder("data", data),
        ensembles=None if ensembles is None else several("ensembles", ensembles),
        passes=dropout_passes,
        show=show,
        tensorboard=tensorboard,
        execution=execution,
    )
    check(recipes, setting)
    with files.made(setting.to):
        runs = trained(recipes, setting)
        made = measured(runs, setting, chosen)
        return tables.write_all(made, setting.to)


def trained(recipes: Sequence[Recipe], setting: Setting) -> list[Run]:
    """Train what is missing.

    Runs with dropout come first: whether the network has any shows at once.
    """
    dropping = [one for one in recipes if one.dropout]
    runs = train(
        [*dropping, *(one for one in recipes if not one.dropout)],
        data=setting.data,
        out=setting.out,
        show=setting.show,
        tensorboard=setting.tensorboard,
        **setting.execution,
    )
    found = {run.recipe.key: run for run in runs}
    return [found[one.key] for one in recipes]


def measured(runs: Sequence[Run], setting: Setting, reference: Recipe | None) -> Comparison:
    """Measure what is missing of finished runs on the same data, and return all of it."""
    evaluate(runs, **setting.measuring(), **setting.evaluation)
    dropping = [run for run in runs if "dropout" in run.recipe.answers]
    passes = evaluate_dropout(dropping, passes=setting.passes, **setting.measuring()) if dropping else []
    dropped = {run.folder.resolve(): one for run, one in zip(dropping, passes, strict=True)}
    groups = gather(run.folder for run in runs)
    images = training_images(runs[0], setting.data)
    splits = list(groups[0].runs[0].record.dataset["splits"])
    entries, standard = [], independent([run.recipe for run in runs])
    for group in groups:
        entries += entries_of(group, splits, images, dropped)
        if any(same(group.recipe, one) for one in standard):
            entries += _ensembles(group, {run.folder.resolve(): run for run in runs}, setting, images)
    known = (entry for entry in entries if reference is not None and same(entry.recipe, reference))
    tested = groups[0].runs[0].record.dataset["splits"]["test"]
    return Comparison(entries, next(known, None), list(runs), images, tested)


def _ensembles(group: Group, runs: Mapping[Path, Run], setting: Setting, images: int) -> list[Entry]:
    """Return the ensembles of independent runs of a group."""
    members = [disjoint(len(group.runs), size) for size in setting.sizes(len(group.runs))]
    chosen = [[runs[group.runs[index].folder] for index in one] for several in members for one in several]
    scores = iter(evaluate_together(chosen, to=setting.to, **setting.measuring()))
    return [
        entry_of_ensembles(group, several, [next(scores) for _ in several], images) for several in members if several
    ]


def training_images(run: Run, data: Folder | None) -> int:
    """Return how many images a run was trained on: its statistics may be of all of them, else the data says it."""
    statistics = Record.read(run.folder).statistics
    if statistics.get("batches") is None and statistics.get("images"):
        return int(statistics["images"])
    one = run.recipe
    return len(datasets.load(one.dataset, data, validation=one.validation, seed=one.data_seed).train)
