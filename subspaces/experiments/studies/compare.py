"""Methods compared on equal terms: the call behind `subspaces compare`, and its table."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subspaces.evaluation.comparing import Group, groups_of, heading
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.statistics import CONFIDENCE, errors
from subspaces.experiments.data.loading import training_count
from subspaces.experiments.evaluating.evaluate import evaluate, evaluations_together
from subspaces.experiments.opening import evaluation_of, training_of
from subspaces.experiments.studies import tables
from subspaces.experiments.studies.setting import (
    Folder,
    OneRecipe,
    Plan,
    Setting,
    check,
    find_reference,
    independent,
    resolve,
    run,
    same,
)
from subspaces.experiments.studies.tables import Drawing, Entry, Result, Table, attempt, entries_of, headlines
from subspaces.experiments.training.display import Mode
from subspaces.experiments.training.recipe import DATA as ALIKE
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run, RunError
from subspaces.reports.page import write_report

if TYPE_CHECKING:
    import pandas as pd

COST = (
    "Cost of training: network-steps, each one batch forward and backward through one network, without the passes for "
    "batch-norm statistics. Networks: how many of them see each test image."
)
OF_RUNS = (
    "Ensembles of one size share no run. Each is compared with the mean of the reference over the seeds of its members."
)


def compare(
    recipe: OneRecipe | Sequence[OneRecipe],
    *,
    seeds: Sequence[int] | None = None,
    ensembles: Sequence[int] | None = None,
    reference: OneRecipe | None = None,
    data: Folder | None = None,
    runs: Folder = "runs",
    out: Folder = "comparison",
    show: Mode = "bar",
    **changes: Any,
) -> "Comparison":
    """Train and evaluate what is missing of several methods, and write one table of them all.

    Everything is decided by the recipes and seeds: nothing is trained or measured twice, and what was interrupted
    continues. Beside the table (comparison.json, .csv, .md) there are a figure and the report page.

    Args:
        recipe: the methods: recipes or names of them, all on the same data.
        seeds: train each recipe once for each of these instead of its own seed.
        ensembles: also measure ensembles of so many independent standard runs; by default of two, where there are two.
        reference: the recipe that others are compared with; by default the first standard one.
        data: the folder with the data sets; by default `data`.
        runs: the folder of the run folders, those that are there and those that are trained.
        out: the folder for the table, the figure and the page.
        show: "bar" for progress bars, "json" for a line per epoch on standard output, "quiet".
        changes: any field of `Recipe` or `Execution` to set for all of them.

    Example:
        >>> comparison = ss.compare(["digits-standard", "digits-line"], seeds=[0, 1], epochs=20)
        >>> comparison.frame.groupby(["method", "words"])["accuracy"].mean()
    """
    where: dict[str, Any] = {"data": data, "runs": runs, "out": out, "show": show}
    setting = Setting.of(seeds=seeds, ensembles=ensembles, **where, **changes)
    return run(plan(recipe, setting, reference))


@dataclass(frozen=True)
class ComparisonPlan(Plan["Comparison"]):
    """All that a comparison is to do."""

    compared: list[Recipe]
    reference: Recipe | None
    second: list[Recipe] = field(default_factory=list)  # one more network for each seed, which is in ensembles alone
    scaled: bool = True  # also answers after temperature scaling
    about: dict[str, Any] = field(default_factory=dict)  # what `evaluate` is told

    @property
    def recipes(self) -> list[Recipe]:
        return [*self.compared, *self.second]

    @property
    def evaluation(self) -> dict[str, Any]:
        return self.about

    def measure(self, runs: Sequence[Run]) -> "Comparison":
        trained = {run.recipe.key: run for run in runs}
        compared, second = ([trained[one.key] for one in some] for some in (self.compared, self.second))
        where = self.setting.measuring()
        records = evaluate(compared, **where, **self.about)
        evaluations = [evaluation_of(run, record) for run, record in zip(compared, records, strict=True)]
        named = {run.folder.name: run for run in compared}
        wanted = [[pair[0], other] for other in second if (pair := [r for r in compared if is_second(other, r)])]
        standard = independent(self.compared)
        for group in groups_of(evaluations):
            members = [named[each.name] for each in group.evaluations]
            if any(same(members[0].recipe, one) for one in standard):
                for size in self.setting.sizes(len(members)):  # ensembles with a run in common would vary less
                    starts = range(0, len(members) - size + 1, size)
                    wanted += [members[start : start + size] for start in starts]
        ensembles = evaluations_together(wanted, evaluations, to=self.setting.out, **where) if wanted else []
        splits, images = (
            records[0].dataset["splits"],
            training_images(compared[0].recipe, records[0], self.setting.data),
        )
        groups, entries = groups_of([*evaluations, *ensembles]), list[Entry]()
        for group in groups:
            recipe = named[group.evaluations[0].name].recipe
            entries += entries_of(group, recipe, list(splits), images, self.scaled)
        known = (one for one in entries if self.reference is not None and same(one.recipe, self.reference))
        return Comparison(entries, next(known, None), compared, second, images, splits["test"], groups)


SECOND = 1000
"""What is added to a seed for the second of two independent networks, so that every seed has an ensemble of its own."""


def is_second(other: Run, first: Run) -> bool:
    """Say whether a run is the second network for the seed of another."""
    return first.recipe.seed + SECOND == other.recipe.seed and same(first.recipe, other.recipe)


def plan(recipe: OneRecipe | Sequence[OneRecipe], setting: Setting, reference: OneRecipe | None) -> ComparisonPlan:
    """Check everything and return what is to be done; nothing is."""
    recipes, resolved = resolve(recipe, setting)
    chosen = find_reference(recipes, reference)
    check(recipes, resolved)
    return ComparisonPlan(resolved, recipes, chosen)


def training_images(recipe: Recipe, record: Evaluation, data: Path | None) -> int:
    """Return how many images runs were trained on: batch-norm statistics are of all of them, else the data says it."""
    if record.statistics["images"]:
        return int(record.statistics["images"])
    count = training_count(recipe.dataset, data, recipe.data_seed, recipe.image_size)
    if count is None:
        raise RunError(f"{record.name}: how many images it was trained on is not known without its data; see --data")
    return count - recipe.validation


@dataclass(frozen=True)
class Comparison(Result):
    """Methods on the same data with the same seeds, and the one that they are compared with."""

    entries: list[Entry]
    reference: Entry | None
    runs: list[Run]
    second: list[Run]  # which are in ensembles alone
    training_images: int
    test_images: int
    groups: list[Group] = field(default_factory=list, repr=False)
    name: str = field(default="comparison", kw_only=True)

    @property
    def frame(self) -> "pd.DataFrame":
        """One row per answer and seed: method, answer, words, networks, runs, seeds and a column per metric."""
        import pandas as pd

        return pd.concat([entry.frame for entry in self.entries], ignore_index=True)

    @property
    def recipe(self) -> Recipe:
        """One of the recipes, for what all of them share."""
        return self.entries[0].recipe

    @property
    def seeds(self) -> list[int]:
        """All seeds."""
        return sorted({run.recipe.seed for run in self.runs})

    @property
    def pairs(self) -> list[Entry]:
        """The entries that can be set against the reference."""
        return [entry for entry in self.entries if entry.against(self.reference, headlines()[0].name) is not None]

    def write(self, folder: Path) -> "Comparison":
        """Write all forms, and the report page."""
        made = super().write(folder)
        evaluations = [one for group in self.groups for one in (*group.evaluations, *group.ensembles)]
        page, reason = attempt("page", lambda: [write_report(evaluations, folder / "report.html")])
        return dataclasses.replace(made, files=made.files + page, left_out=made.left_out + reason)

    def tables(self) -> list[Table]:
        columns = ("method", "answer", *(each.title for each in headlines()), "training", "networks")
        return [Table(self.heading(), columns, [self._cells(entry) for entry in self.entries], left=2)]

    def _cells(self, entry: Entry) -> list[str]:
        relative = entry.relative_cost(self.reference)
        training = f"{entry.steps:,.0f}" + ("" if relative is None else f"\n× {relative:.3g}")
        return [entry.method, entry.words, *entry.cells(self.reference), training, str(entry.networks)]

    def rows(self, summary: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
        return {self.name: summary["entries"]}

    def draw(self) -> Drawing:
        from subspaces.experiments.studies import drawing

        if self.reference is None or not self.pairs:
            return None
        return drawing.differences(self.heading(), self.pairs, self.reference)

    def summary(self) -> dict[str, Any]:
        return {
            **{name: getattr(self.recipe, name) for name in ALIKE},
            "split": "test",
            "images": self.test_images,
            "training_images": self.training_images,
            "seeds": self.seeds,
            "reference": None if self.reference is None else self.reference.named,
            "confidence": CONFIDENCE,
            "notes": self.notes(),
            "environments": tables.environments(self.runs),
            "entries": [self._entry(entry) for entry in self.entries],
        }

    def _entry(self, entry: Entry) -> dict[str, Any]:
        group = entry.group
        return {
            "method": entry.method,
            "answer": entry.words,
            "n": entry.count,
            "recipe": tables.without_seed(entry.recipe),
            "seeds": [list(seeds) for seeds in entry.frame["seeds"]],
            "runs": [one.name for one, seed in zip(group.evaluations, group.seeds, strict=True) if seed in entry.seeds],
            "training_network_steps": entry.steps,
            "training_relative": entry.relative_cost(self.reference),
            "networks_at_test": entry.networks,
            "metrics": entry.metrics(self.reference),
        }

    def heading(self) -> str:
        """Return what all methods share."""
        recipes, told = [entry.recipe for entry in self.entries], []
        words = {"epochs": "{} epochs", "dropout": "dropout {:g}", "label_smoothing": "smoothing {:g}"}
        for name, text in words.items():
            values = {getattr(recipe, name) for recipe in recipes}
            told += [text.format(value) for value in values if value and len(values) == 1]
        return heading([*map(training_of, recipes)], *told, f"{self.test_images:,} test images")

    def notes(self) -> list[str]:
        first, *others = self.common_notes()
        return [first, COST, *others]

    def common_notes(self) -> list[str]:
        """Return the notes that also a table of several comparisons needs: on seeds, differences and intervals."""
        count = max(entry.count for entry in self.entries)
        single = {tuple(entry.seeds) for entry in self.entries if entry.runs == 1}  # an ensemble may leave one out
        named = "the seeds of each method" if len(single) > 1 else tables.named_seeds(self.seeds)
        found = [f"Mean ± standard deviation (n − 1) over {named}." if count > 1 else f"Trained once ({named})."]
        found += self._notes_on_differences(count)
        return found + [OF_RUNS] * any(entry.runs > 1 for entry in self.entries)

    def _notes_on_differences(self, count: int) -> list[str]:
        reference, paired = self.reference, self.pairs
        if reference is None:
            return ["No standard training is among the recipes, so there are no differences to it."]
        alike = {reference.method, *(entry.method for entry in paired)}
        missing = [name for name in dict.fromkeys(entry.method for entry in self.entries) if name not in alike]
        lacking = f"No difference is given for {', '.join(missing)}: {reference.named} lacks some of its seeds."
        found = [lacking] if missing else []
        if not paired:
            return found
        wide = f"with its {CONFIDENCE:.0%} confidence interval (Student's t)"
        interval = wide if count > 1 else "without an interval"
        found.append(f"Second line: difference to {reference.named}, paired by the seed, {interval}.")
        if 2 <= count <= 3:
            found.append(
                f"With {count} seeds the interval reaches {errors(count):.1f} standard errors to each side: "
                "it is wide, and if it contains 0 there may still be a difference."
            )
        if count > 1 and len(self.entries) > 2:
            found.append("Each interval stands for itself: expect one in twenty to miss the true difference.")
        return found
