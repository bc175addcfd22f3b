"""Exhibits that are comparisons: methods on the same data, measured at points, along lines and on planes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, ClassVar

from subspaces.errors import ArgumentError
from subspaces.evaluation import curves, group_answers
from subspaces.evaluation.comparing import Group
from subspaces.evaluation.rows import OUTLIERS
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.shifted_data import Corruptions
from subspaces.experiments.evaluating.training import training_of
from subspaces.experiments.studies.catalogue.claims import BySeed, Quantity
from subspaces.experiments.studies.catalogue.exhibit import Exhibit, Numbers, Plan
from subspaces.experiments.studies.catalogue.scales import Bench
from subspaces.experiments.studies.compare import Comparison, measure
from subspaces.experiments.studies.compare import plan as plan_comparison
from subspaces.experiments.studies.entries import Entry
from subspaces.experiments.studies.setting import Setting, same, train_missing
from subspaces.experiments.studies.tables import Figure, Result
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run
from subspaces.reports import figures
from subspaces.text import nearest

TWIN = 1000
"""What is added to a seed for the second of two independent networks, so that every seed has an ensemble of its own."""
STANDARD = "standard"
FIRST = "l2 after the first epoch"
LAST = ("l2", "cos2")
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
        """Return the evaluations of a method."""
        if label not in self.recipes:
            raise ArgumentError(f"no method {label!r} in this exhibit: {nearest(label, self.recipes)}")
        wanted = training_of(self.recipes[label]).group
        return next(each for each in self.comparison.groups if each.training and each.training.group == wanted)

    def entry(self, label: str, answer: str) -> Entry:
        """Return an answer of a method."""
        group = self.group(label)
        found = {each.kind: each for each in self.comparison.entries if each.method == group.label}
        kind = "network" if answer == "midpoint" and group.single else answer
        if kind not in found:
            raise ArgumentError(f"{label} has no answer {answer!r}: {nearest(answer, found)}")
        return found[kind]

    def runs(self, label: str) -> dict[int, Run]:
        """Return the runs of a method by the seed."""
        return {run.recipe.seed: run for run in self.comparison.runs if same(run.recipe, self.recipes[label])}

    def pairs(self, label: str) -> dict[int, tuple[Run, Run]]:
        """Return the runs of a method with their twins, by the seed."""
        twins = {run.recipe.seed: run for run in self.twins}
        return {seed: (run, twins[seed + TWIN]) for seed, run in self.runs(label).items()}


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
        found = replace(found, groups=[seen(each, Settings.of(about)) for each in found.groups])
        panel = Panel(plan.bench, self.recipes(plan.bench), found, twins, plan.setting)
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


def seen(group: Group, settings: Settings) -> Group:
    """Return a group with nothing but what these settings measure along a line or curve and on corrupted images.

    Its evaluations may have more, of other exhibits or of the user's: what is drawn and claimed must not depend on it.
    """
    frame, corrupted = group.frame, settings.corruptions
    places = {round(each, 9) + 0.0 for alpha in settings.grid for each in (alpha, 1 - alpha)} | {0.5}
    here = (frame["role"] != "along") | frame["alphas"].map(places.issuperset)
    names, severities = (corrupted.names, corrupted.severities) if isinstance(corrupted, Corruptions) else ((), ())
    wanted = frame["data"].isin(names or ()) & frame["severity"].isin(severities)
    return replace(group, rows=frame[here & (frame["group"].isin(("", OUTLIERS)) | wanted)])


def _twins(first: Run, second: Run) -> bool:
    return first.recipe.seed + TWIN == second.recipe.seed and same(first.recipe, second.recipe)


# Quantities


def answer(label: str, name: str = "midpoint", metric: str = "accuracy") -> Quantity[Panel]:
    """Return a metric of one of a method's answers."""
    return Quantity(f"{label}: {name}", lambda found: found.entry(label, name).by_seed(metric))


def two_networks(metric: str = "accuracy") -> Quantity[Panel]:
    """Return a metric of the ensemble of two independent networks, a run and its twin."""
    return replace(answer(STANDARD, "runs", metric), words="two networks together")


def at(label: str, alpha: float, metric: str = "accuracy") -> Quantity[Panel]:
    """Return a metric of the network at a point of a line or curve."""
    return _curve(f"{label} at {alpha:g}", label, metric, "", lambda by_alpha: by_alpha[alpha])


def together(label: str, alpha: float, metric: str = "accuracy") -> Quantity[Panel]:
    """Return a metric of the ensemble of alpha and 1 − alpha."""
    words = f"{label}: {alpha:g} and {1 - alpha:g} together"
    return _curve(words, label, metric, None, lambda by_alpha: by_alpha[alpha])


def along(label: str, metric: str = "accuracy") -> Quantity[Panel]:
    """Return a metric on average over the points of a line or curve."""
    return _curve(f"{label}: mean along it", label, metric, "", lambda by_alpha: fmean(by_alpha.values()))


def _curve(
    words: str, label: str, metric: str, average: str | None, of: Callable[[dict[float, float]], float]
) -> Quantity[Panel]:
    """Return a number of each seed's metric by alpha, of points ("") or of ensembles (None)."""

    def by_seed(found: Panel) -> BySeed:
        group = found.group(label)
        curve = curves.along(group, metric, average=average)
        grid = curve.grid.tolist()
        return {
            seed: of(dict(zip(grid, values, strict=True)))
            for seed, values in zip(group.seeds, curve.values.tolist(), strict=True)
        }

    return Quantity(words, by_seed)


def ends(label: str, metric: str = "accuracy") -> Quantity[Panel]:
    """Return a metric of a subspace's ends, or vertices, on average."""

    def of(found: Panel) -> BySeed:
        rows = group_answers.answers(found.group(label), alone=True)
        rows = rows[rows["answer"] == group_answers.ALONE]
        return {seeds[0]: float(value) for seeds, value in zip(rows["seeds"], rows[metric], strict=True)}

    return Quantity(f"{label}: ends", of)


def number(label: str, measure: str) -> Quantity[Panel]:
    """Return what was measured beside answers."""
    return Quantity(f"{label}: {measure}", lambda found: found.numbers[label][measure])


def distances(found: Panel) -> Numbers:
    """Return how far apart the vertices of each subspace are after the last epoch, and after the first."""
    numbers: Numbers = {}
    for label, recipe in found.recipes.items():
        if recipe.shape().vertices > 1:
            logs = {seed: run.log() for seed, run in found.runs(label).items()}
            numbers[label] = {name: {seed: float(log[-1][name]) for seed, log in logs.items()} for name in LAST}
            numbers[label][FIRST] = {seed: float(log[0]["l2"]) for seed, log in logs.items()}
    return numbers
