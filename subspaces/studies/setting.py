"""What is compared, and how: checked before anything is trained."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from subspaces import values
from subspaces.evaluation.dropout import PASSES
from subspaces.evaluation.together import ALIKE
from subspaces.methods.fields import MOST
from subspaces.text import nearest
from subspaces.training import feasible
from subspaces.training.api import configure
from subspaces.training.config import Execution, Recipe
from subspaces.training.display import Mode, check_mode
from subspaces.training.recipes import RECIPES
from subspaces.training.runs import Run

Folder = str | os.PathLike[str]
OneRecipe = Recipe | str
MOST_PASSES = 10_000
MOST_VALUES = 1000
State = Literal["to train", "to continue", "to evaluate", "evaluated"]


@dataclass(frozen=True)
class Setting:
    """What a comparison needs beside its recipes."""

    out: Path = Path("runs")
    to: Path = Path("comparison")
    data: Folder | None = None
    ensembles: tuple[int, ...] | None = None
    passes: int = PASSES
    show: Mode = "bar"
    tensorboard: bool = True
    execution: dict[str, Any] = field(default_factory=dict)  # what was asked for of `Execution`
    evaluation: dict[str, Any] = field(default_factory=dict)  # what `evaluate` is told beside

    def sizes(self, seeds: int) -> list[int]:
        """Return of how many independent runs ensembles are made: of two, unless told otherwise."""
        if self.ensembles is None:
            return [2] if seeds >= 2 else []
        return sorted(set(self.ensembles))

    def measuring(self) -> dict[str, Any]:
        """Return where and how everything is measured."""
        wanted = ("device", "precision", "workers")
        asked = {name: value for name, value in self.execution.items() if name in wanted}
        return {"data": self.data, "progress": self.show == "bar", **asked}


def prepared(
    recipe: OneRecipe | Sequence[OneRecipe], seeds: Sequence[int] | None, changes: dict[str, Any]
) -> tuple[list[Recipe], dict[str, Any]]:
    """Return the different recipes with all changes and seeds, and what was asked for of their execution."""
    several = values.all_of("recipe", recipe, (Recipe, str), "a Recipe, the name of one, or several of either")
    settings = {name: value for name, value in changes.items() if name in Execution.__dataclass_fields__}
    found, _ = configure(several, seeds, changes)
    return list({one.key: one for one in found}.values()), settings


def several(name: str, given: int | Sequence[int]) -> tuple[int, ...]:
    """Return whole numbers of which there may be only one."""
    alone = isinstance(given, int)
    found = [given] if alone else values.several(name, given, "whole numbers, such as [2, 5]", MOST_VALUES)
    return tuple(values.whole(name, each, 0, MOST) for each in found)


def check_output(setting: Setting) -> None:
    """Refuse a way of showing progress that there is not, and tables among the runs."""
    check_mode(setting.show)
    if setting.to.resolve() == setting.out.resolve():
        raise ValueError(f"to={str(setting.to)!r}: expected another folder than that of the runs")


def check(recipes: Sequence[Recipe], setting: Setting) -> None:
    """Refuse what cannot be compared, before anything is trained."""
    known: dict[tuple[Any, ...], Recipe] = {}
    for one in recipes:
        other = known.setdefault((one.seed, *one.distinguishing().items()), one)
        if other is not one:
            raise ValueError(f"{other.name} and {one.name} are the same training: they differ in nothing that it uses")
    first = recipes[0]
    for one in recipes[1:]:
        for name in ALIKE:
            ours, theirs = getattr(first, name), getattr(one, name)
            if ours != theirs:
                hint = f"; --{name.replace('_', '-')} sets it for all" if name != "dataset" else ""
                raise ValueError(
                    f"{first.name} has {name.replace('_', ' ')} {ours!r} and {one.name} {theirs!r}: "
                    f"methods are compared on the same data{hint}"
                )
    check_output(setting)
    feasible.check(recipes, setting.data)
    values.whole("dropout_passes", setting.passes, 1, MOST_PASSES)
    standard = independent(recipes)
    counts = [len({each.seed for each in recipes if same(each, one)}) for one in standard]
    for size in setting.ensembles or ():
        if size < 2 or size > max(counts, default=0):
            raise ValueError(
                f"ensembles={size}: expected 2 or more and as many seeds of a standard recipe, of which there are "
                f"{max(counts, default=0)}"
            )


def plain(recipe: Recipe) -> bool:
    """Say whether a recipe is standard training with nothing added."""
    return recipe.method == "standard" and not recipe.dropout and not recipe.label_smoothing


def independent(recipes: Sequence[Recipe]) -> list[Recipe]:
    """Return what ensembles of independent runs are made of: plain recipes, or the first standard one where none is."""
    first = reference_of(recipes, None)
    return [one for one in recipes if plain(one) or (first is not None and same(one, first))]


def same(first: Recipe, second: Recipe) -> bool:
    """Say whether two recipes differ in nothing but their name and seed."""
    fields = [{k: v for k, v in one.to_dict().items() if k not in ("name", "seed")} for one in (first, second)]
    return fields[0] == fields[1]


def reference_of(recipes: Sequence[Recipe], name: OneRecipe | None) -> Recipe | None:
    """Return the recipe of that name, or the first standard one, without anything else if there is one."""
    if name is not None:
        if not isinstance(name, (Recipe, str)):
            raise TypeError(f"reference={values.shown(name)}: expected a Recipe or the name of one")
        name = name.name if isinstance(name, Recipe) else name
        known = {one.name: one for one in reversed(recipes)}
        if name not in known:
            hint = (
                f"expected one of those compared, {', '.join(sorted(known))}"
                if name in RECIPES
                else nearest(name, known)
            )
            raise ValueError(f"reference={name!r}: {hint}")
        return known[name]
    standard = [one for one in recipes if one.method == "standard"]
    return next(iter([*filter(plain, standard), *standard]), None)


def plan(recipes: Sequence[Recipe], out: Folder) -> list[tuple[Run, State]]:
    """Return the runs with what is left to do for each; nothing is done."""
    runs = [Run.under(out, one) for one in recipes]
    for run in runs:
        run.check()
    return [(run, state(run)) for run in runs]


def state(run: Run) -> State:
    """Say what is left to do for a run; whether its evaluation is whole shows only when it is read."""
    if run.finished:
        return "evaluated" if (run.folder / "evaluation.json").is_file() else "to evaluate"
    return "to continue" if (run.folder / "state.safetensors").is_file() else "to train"
