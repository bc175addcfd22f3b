"""Exhibits that are comparisons: methods on the same data, measured at points, along lines and on planes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from subspaces.errors import ArgumentError
from subspaces.evaluation.record import Row
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.shifted_data import Corruptions
from subspaces.evaluation.statistics import spread
from subspaces.experiments.studies.catalogue.claims import BySeed, Quantity
from subspaces.experiments.studies.catalogue.exhibit import Exhibit, Numbers, Plan
from subspaces.experiments.studies.catalogue.scales import Bench
from subspaces.experiments.studies.compare import plan as plan_comparison
from subspaces.experiments.studies.comparison import Comparison, measure
from subspaces.experiments.studies.entries import Entry, recipe_of, run_of
from subspaces.experiments.studies.setting import Setting, same, train_missing
from subspaces.experiments.studies.tables import Figure, Result
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run
from subspaces.reports import figures
from subspaces.reports.answers import alone
from subspaces.reports.reading import Group, Reading, value
from subspaces.text import nearest

TWIN = 1000
"""What is added to a seed for the second of two independent networks, so that every seed has an ensemble of its own."""
STANDARD = "standard"
FIRST = "l2 after the first epoch"
Recipes = dict[str, Recipe]
"""By what an exhibit calls them."""


@dataclass(frozen=True)
class Panel:
    """What was measured of methods on one bench."""

    bench: Bench
    recipes: Recipes
    comparison: Comparison
    twins: list[Run]
    setting: Setting
    numbers: Numbers = field(default_factory=dict)

    def group(self, label: str) -> Group:
        """Return the runs of a method."""
        if label not in self.recipes:
            raise ArgumentError(f"no method {label!r} in this exhibit: {nearest(label, self.recipes)}")
        return next(each for each in self.comparison.groups if same(recipe_of(each), self.recipes[label]))

    def entry(self, label: str, answer: str) -> Entry:
        """Return an answer of a method."""
        group = self.group(label)
        found = {each.kind: each for each in self.comparison.entries if each.group.label == group.label}
        kind = "network" if answer == "midpoint" and group.runs[0].single else answer
        if kind not in found:
            raise ArgumentError(f"{label} has no answer {answer!r}: {nearest(answer, found)}")
        return found[kind]

    def runs(self, *labels: str) -> list[Run]:
        """Return the runs of some methods, or of all."""
        return [run_of(run) for label in labels or self.recipes for run in self.group(label).runs]

    def pairs(self, label: str) -> dict[int, tuple[Run, Run]]:
        """Return the runs of a method with their twins, by the seed."""
        twins = {run.recipe.seed: run for run in self.twins}
        return {run.seed: (run_of(run), twins[run.seed + TWIN]) for run in self.group(label).runs}


class Compared(Exhibit[Panel]):
    """Methods on the same data."""

    picture: ClassVar[str]
    """The kind of figure."""
    metric: ClassVar[str | None] = None
    """What that shows, if not the usual."""
    twins: ClassVar[bool] = False
    """Whether standard training has a second network for each seed, for ensembles of two."""

    def recipes(self, bench: Bench) -> Recipes:
        """Return what is trained, by what claims call it."""
        raise NotImplementedError

    def evaluation(self, bench: Bench) -> dict[str, Any]:
        return {"grid": bench.scale.grid, "triangle": 0}

    def plan(self, bench: Bench, setting: Setting) -> Plan:
        recipes = self.recipes(bench)
        study = plan_comparison(list(recipes.values()), replace(setting, ensembles=()), None)
        standard = [one for one in study.recipes if self.twins and same(one, recipes[STANDARD])]
        return Plan(self, bench, study, [replace(one, seed=one.seed + TWIN) for one in standard])

    def measure(self, plan: Plan) -> Panel:
        trained = {run.recipe.key: run for run in train_missing(plan.recipes, plan.setting)}
        runs, twins = ([trained[one.key] for one in some] for some in (plan.study.recipes, plan.twins))
        self.measure_more(plan, runs)
        pairs = [[first, second] for second in twins for first in runs if _twins(first, second)]
        about = self.evaluation(plan.bench)
        found = measure(runs, plan.setting, plan.study.reference, twins=pairs, **about)
        groups = [replace(each, runs=[seen(run, Settings.of(about)) for run in each.runs]) for each in found.groups]
        recipes, found = self.recipes(plan.bench), replace(found, groups=groups)
        panel = Panel(plan.bench, recipes, found, twins, plan.setting)
        return replace(panel, numbers=self.numbers(panel))

    def numbers(self, found: Panel) -> Numbers:
        """Return what was measured of methods beside their answers."""
        return {}

    def measure_more(self, plan: Plan, runs: Sequence[Run]) -> None:
        """Measure what not all runs are measured on."""

    def result(self, found: Panel) -> Result:
        return found.comparison

    def numbers_of(self, found: Panel) -> Numbers:
        return found.numbers

    def draw(self, found: Panel) -> Figure:
        return figures.draw_groups(self.picture, self.drawn(found), self.metric)

    def drawn(self, found: Panel) -> list[Group]:
        """Return what is drawn."""
        return found.comparison.groups


def seen(run: Reading, settings: Settings) -> Reading:
    """Return a run with nothing but what these settings measure along it and on corrupted images.

    Its record may have more, of other exhibits or of the user's: what is drawn and claimed must not depend on that.
    """
    places = {round(each, 9) + 0.0 for alpha in settings.grid for each in (alpha, 1 - alpha)} | {0.5}
    corrupted: Any = settings.corruptions
    names, severities = (corrupted.names, corrupted.severities) if isinstance(corrupted, Corruptions) else ((), ())
    rows = [row for row in run.record.rows if _of(row, places)]
    kept = [row for row in rows if not row.group or (row.data in (names or ()) and row.severity in severities)]
    record = replace(run.record, rows=kept)
    return Reading(run_of(run), record)


def _of(row: Row, places: Collection[float]) -> bool:
    """Say whether a row is of some points along a line or curve, or of none there."""
    return row.role != "along" or all(alpha in places for alpha in row.alphas)


def _twins(first: Run, second: Run) -> bool:
    return first.recipe.seed + TWIN == second.recipe.seed and same(first.recipe, second.recipe)


# Quantities


def answer(label: str, name: str = "midpoint", metric: str = "accuracy") -> Quantity[Panel]:
    """Return a metric of one of a method's answers."""

    def of(found: Panel) -> BySeed:
        return {seeds[0]: metrics[metric] for seeds, metrics in found.entry(label, name).by_seeds.items()}

    return Quantity(f"{label}: {name}", of)


def two_networks(metric: str = "accuracy") -> Quantity[Panel]:
    """Return a metric of the ensemble of two independent networks, a run and its twin."""
    return replace(answer(STANDARD, "runs", metric), words="two networks together")


def at(label: str, alpha: float, metric: str = "accuracy") -> Quantity[Panel]:
    """Return a metric of the network at a point of a line or curve."""

    def of(found: Panel) -> BySeed:
        return {run.seed: value(run.points("test")[alpha], metric) for run in found.group(label).runs}

    return Quantity(f"{label} at {alpha:g}", of)


def together(label: str, alpha: float, metric: str = "accuracy") -> Quantity[Panel]:
    """Return a metric of the ensemble of alpha and 1 − alpha."""

    def of(found: Panel) -> BySeed:
        return {run.seed: value(run.pairs("test")[alpha], metric) for run in found.group(label).runs}

    return Quantity(f"{label}: {alpha:g} and {1 - alpha:g} together", of)


def ends(label: str, metric: str = "accuracy") -> Quantity[Panel]:
    """Return a metric of a subspace's ends, or vertices, on average."""

    def of(found: Panel) -> BySeed:
        known = alone(found.group(label), "test")
        return {} if known is None else {seeds[0]: metrics[metric] for seeds, metrics in known.by_seeds.items()}

    return Quantity(f"{label}: ends", of)


def along(label: str, metric: str = "accuracy") -> Quantity[Panel]:
    """Return a metric on average over the points of a line or curve."""

    def of(found: Panel) -> BySeed:
        runs = {run.seed: list(run.points("test").values()) for run in found.group(label).runs}
        return {seed: spread([value(row, metric) for row in rows]).mean for seed, rows in runs.items()}

    return Quantity(f"{label}: mean along it", of)


def number(label: str, measure: str) -> Quantity[Panel]:
    """Return what was measured beside answers."""
    return Quantity(f"{label}: {measure}", lambda found: found.numbers[label][measure])


def distances(found: Panel) -> Numbers:
    """Return how far apart the vertices of each subspace are after the last epoch, and after the first."""
    numbers: Numbers = {}
    for label, recipe in found.recipes.items():
        if recipe.shape().vertices > 1:
            runs = found.group(label).runs
            numbers[label] = {name: {run.seed: float(run.log[-1][name]) for run in runs} for name in ("l2", "cos2")}
            numbers[label][FIRST] = {run.seed: float(run.log[0]["l2"]) for run in runs}
    return numbers
