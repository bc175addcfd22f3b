"""What is compared, and how: resolved and checked once, before anything is trained."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.experiments import locks
from subspaces.experiments.evaluating.evaluate import evaluate
from subspaces.experiments.methods.fields import MOST
from subspaces.experiments.studies.tables import Result
from subspaces.experiments.training.api import configure, train_recipes
from subspaces.experiments.training.display import Mode, check_mode
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import DATA as ALIKE
from subspaces.experiments.training.recipe import RECIPES, Recipe
from subspaces.experiments.training.runs import Run
from subspaces.text import nearest

Folder = str | os.PathLike[str]
OneRecipe = Recipe | str
R = TypeVar("R", bound=Result)
DEVICE = ("device", "precision", "workers")  # what of an execution matters for measuring
WHERE = ("runs", "out", "data", "ensembles", "show", "seeds")  # what callers name
State = Literal["to train", "to continue", "to evaluate", "evaluated"]


@dataclass(frozen=True)
class Setting:
    """What a comparison or a study is asked for beside its own arguments; `compare` says what each of it is."""

    runs: Path = Path("runs")
    out: Path = Path("comparison")
    data: Path | None = None
    ensembles: tuple[int, ...] | None = None
    show: Mode = "bar"
    execution: Execution = Execution()
    seeds: Sequence[int] | None = None
    changes: dict[str, Any] = field(default_factory=dict)  # of the recipes and their execution, until they are resolved

    @classmethod
    def of(cls, **given: Any) -> "Setting":
        """Sort out what was passed: what is no part of a setting are changes."""
        return cls(**{name: given.pop(name) for name in WHERE if name in given}, changes=given)

    def __post_init__(self) -> None:
        check_mode(self.show)
        for name in ("runs", "out", "data"):
            if name != "data" or self.data is not None:
                object.__setattr__(self, name, checks.folder(name, getattr(self, name)))
        if self.runs.resolve() == self.out.resolve():
            raise ArgumentError(f"out={str(self.out)!r}: expected another folder than that of the runs")
        if self.ensembles is not None:
            object.__setattr__(self, "ensembles", whole_numbers("ensembles", self.ensembles))

    def sizes(self, seeds: int) -> list[int]:
        """Return of how many independent runs ensembles are made: of two, unless told otherwise."""
        if self.ensembles is None:
            return [2] if seeds >= 2 else []
        return sorted(set(self.ensembles))

    @property
    def measured_on(self) -> Execution:
        """Where things are measured: how they were trained does not matter for that."""
        found = {name: getattr(self.execution, name) for name in DEVICE}
        there = self.execution.ray is not None and self.execution.device != "cpu"  # the GPUs are those of a cluster
        return Execution(**(found | ({"device": "auto"} if there else {})))

    def measuring(self) -> dict[str, Any]:
        """Return where and how everything is measured, as arguments of `evaluate`."""
        on = {name: getattr(self.measured_on, name) for name in DEVICE}
        return {"data": self.data, "progress": self.show == "bar", **on}


@dataclass(frozen=True)
class Plan(Generic[R]):
    """All that a comparison or a study is to do; nothing of it is done."""

    setting: Setting

    @property
    def recipes(self) -> list[Recipe]:
        """Everything that is trained."""
        raise NotImplementedError

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """How runs are measured, as arguments of `evaluate`; None where it is not by that."""
        return None

    def measure(self, runs: Sequence[Run]) -> R:
        """Measure what is missing of the trained recipes, and return all of it."""
        raise NotImplementedError


def run(plan: Plan[R]) -> R:
    """Train, measure and write what is missing."""
    with locks.made(plan.setting.out):
        return plan.measure(train_missing(plan.recipes, plan.setting, plan.evaluation)).write(plan.setting.out)


def whole_numbers(name: str, given: int | Sequence[int]) -> tuple[int, ...]:
    """Return whole numbers of which there may be only one."""
    alone = isinstance(given, int)
    found = [given] if alone else checks.several(name, given, "whole numbers, such as [2, 5]", 1000)
    return tuple(checks.whole(name, each, 0, MOST) for each in found)


def resolve(recipe: OneRecipe | Sequence[OneRecipe], setting: Setting) -> tuple[list[Recipe], Setting]:
    """Return the different recipes with all seeds and changes, and the setting with what is left of these."""
    several = checks.all_of("recipe", recipe, (Recipe, str), "a Recipe, the name of one, or several of either")
    found, execution = configure(several, setting.seeds, setting.changes, setting.data)
    recipes = list({one.key: one for one in found}.values())
    return recipes, replace(setting, execution=execution, seeds=None, changes={})


def check(recipes: Sequence[Recipe], setting: Setting) -> None:
    """Refuse what cannot be compared or trained."""
    known: dict[tuple[Any, ...], Recipe] = {}
    for one in recipes:
        other = known.setdefault((one.seed, *one.distinguishing().items()), one)
        if other is not one:
            raise ArgumentError(
                f"{other.name} and {one.name} are the same training: they differ in nothing that it uses"
            )
    for one in recipes[1:]:
        _check_alike(recipes[0], one)
    seeds = [len({each.seed for each in recipes if same(each, one)}) for one in independent(recipes)]
    for size in setting.ensembles or ():
        if size < 2 or size > max(seeds, default=0):
            raise ArgumentError(
                f"ensembles={size}: expected 2 or more and as many seeds of a standard recipe, of which there are "
                f"{max(seeds, default=0)}"
            )


def _check_alike(first: Recipe, other: Recipe) -> None:
    for name in ALIKE:
        ours, theirs = getattr(first, name), getattr(other, name)
        if ours != theirs:
            hint = f"; --{name.replace('_', '-')} sets it for all" if name != "dataset" else ""
            raise ArgumentError(
                f"{first.name} has {name.replace('_', ' ')} {ours!r} and {other.name} {theirs!r}: "
                f"methods are compared on the same data{hint}"
            )


def plain(recipe: Recipe) -> bool:
    """Say whether a recipe is standard training with nothing added."""
    return recipe.method == "standard" and not recipe.dropout and not recipe.label_smoothing


def independent(recipes: Sequence[Recipe]) -> list[Recipe]:
    """Return what ensembles of independent runs are made of: plain recipes, or the first standard one where none is."""
    first = find_reference(recipes)
    return [one for one in recipes if plain(one) or (first is not None and same(one, first))]


def same(first: Recipe, second: Recipe) -> bool:
    """Say whether two recipes differ in nothing but their name and seed."""
    fields = [{k: v for k, v in one.to_dict().items() if k not in ("name", "seed")} for one in (first, second)]
    return fields[0] == fields[1]


def find_reference(recipes: Sequence[Recipe], name: OneRecipe | None = None) -> Recipe | None:
    """Return the recipe of that name, or the first standard one, without anything else if there is one."""
    if name is None:
        standard = [one for one in recipes if one.method == "standard"]
        return next(iter([*filter(plain, standard), *standard]), None)
    if not isinstance(name, (Recipe, str)):
        raise ArgumentError(f"reference={checks.shown(name)}: expected a Recipe or the name of one")
    name = name.name if isinstance(name, Recipe) else name
    known = {one.name: one for one in reversed(recipes)}
    if name not in known:
        compared = f"expected one of those compared, {', '.join(sorted(known))}"
        raise ArgumentError(f"reference={name!r}: {compared if name in RECIPES else nearest(name, known)}")
    return known[name]


def train_missing(
    recipes: Sequence[Recipe], setting: Setting, evaluation: Mapping[str, Any] | None = None
) -> list[Run]:
    """Train what is missing.

    Runs with dropout come first: whether the network has any shows at once. With `evaluation`, which is what `evaluate`
    is told, machines of a cluster also evaluate what they have trained.
    """
    ordered = sorted(recipes, key=lambda one: not one.dropout)
    where: dict[str, Any] = {"data": setting.data, "out": setting.runs, "show": setting.show}
    if evaluation is not None and setting.execution.ray is not None:
        where["then"] = partial(_evaluate_there, **evaluation)
    runs = train_recipes(ordered, setting.execution, **where)
    found = {run.recipe.key: run for run in runs}
    return [found[one.key] for one in recipes]


def _evaluate_there(run: Run, data: Path, execution: Execution, **settings: Any) -> None:
    """Evaluate a run on the machine that has trained it: the numbers stay in its folder."""
    how = {name: getattr(execution, name) for name in DEVICE}
    evaluate(run, data=data, progress=False, **how, **settings)


def states(recipes: Sequence[Recipe], folder: Path) -> list[tuple[Run, State]]:
    """Return the runs with what is left to do for each; nothing is done."""
    runs = [Run.under(folder, one) for one in recipes]
    for run in runs:
        run.check()
    return [(run, _state(run)) for run in runs]


def _state(run: Run) -> State:
    """Say what is left to do for a run; whether its evaluation is whole shows only when it is read."""
    if run.finished:
        return "evaluated" if (run.folder / "evaluation.json").is_file() else "to evaluate"
    return "to continue" if (run.folder / "state.safetensors").is_file() else "to train"
