"""Methods at several levels of label noise: planned, and measured level by level."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from subspaces import values
from subspaces.evaluation.metrics import metric as known_metric
from subspaces.studies.comparison import Comparison
from subspaces.studies.entries import Entry
from subspaces.studies.lines import Line, Study
from subspaces.studies.measuring import measure
from subspaces.studies.setting import OneRecipe, Setting, check, find_reference, resolve, same
from subspaces.text import nearest
from subspaces.training.config import Recipe
from subspaces.training.runs import Run

LEVELS = (0.0, 0.2, 0.4, 0.6)
OPTIONS = {"dropout": "--dropout-rates", "label_smoothing": "--smoothing-rates"}
QUICK: dict[str, Any] = {"grid": (0.0, 0.1, 0.5, 0.9, 1.0), "triangle": 0}  # all that the table asks for


@dataclass(frozen=True)
class Method:
    """What stands in one line: a recipe, or several that differ in one setting, of which the best is reported."""

    label: str
    candidates: list[Recipe]
    setting: str | None = None


@dataclass(frozen=True)
class Plan:
    """All that a study over levels of noise is to do."""

    by: str
    methods: list[Method]
    grid: dict[float, list[Recipe]]  # by level
    setting: Setting

    @property
    def recipes(self) -> list[Recipe]:
        """What is trained."""
        return [one for recipes in self.grid.values() for one in recipes]


def plan_levels(
    recipe: OneRecipe | Sequence[OneRecipe],
    setting: Setting,
    levels: Sequence[float],
    lists: Mapping[str, Sequence[float]],
    by: str,
    seeds: Sequence[int] | None,
    changes: dict[str, Any],
) -> Plan:
    """Check everything and return what is to be done; nothing is."""
    if "label_noise" in changes:
        raise ValueError(f"label_noise={changes['label_noise']}: the study has levels of it instead")
    if not isinstance(by, str):
        raise ValueError(f"by={values.shown(by)}: expected the name of a metric, such as 'accuracy'")
    known_metric(by)
    _check_numbers(levels, lists)
    base, execution = resolve(recipe, None, changes)
    methods = methods_of(base, lists)
    grid = {level: _at_level(methods, level, seeds) for level in sorted({float(level) for level in levels})}
    if not grid:
        raise ValueError("no levels of label noise were given: expected one or more")
    for recipes in grid.values():
        check(recipes, setting)
    return Plan(by, methods, grid, setting.resolved(execution, **QUICK))


def _check_numbers(levels: Any, lists: Any) -> None:
    """Refuse levels and settings that are no lists of numbers."""
    if not isinstance(lists, Mapping):
        raise ValueError(f"lists={values.shown(lists)}: expected a dict of lists, such as {{'dropout': [0.1, 0.2]}}")
    for name, given in (("levels", levels), *lists.items()):
        for each in values.several(str(name), given, "a list of numbers, such as [0, 0.2]"):
            values.number(str(name), each)


def methods_of(recipes: Sequence[Recipe], lists: Mapping[str, Sequence[float]]) -> list[Method]:
    """Return a method for each recipe, and one for each list of settings of the standard recipe."""
    words = [_named(one) for one in recipes]
    names = [word if words.count(word) == 1 else one.name for word, one in zip(words, recipes, strict=True)]
    found = [Method(name, [one]) for name, one in zip(names, recipes, strict=True)]
    standard = find_reference(recipes)
    for name, rates in lists.items():
        if name not in OPTIONS:
            raise ValueError(f"lists={{{name!r}: …}}: {nearest(name, OPTIONS)}")
        tried = sorted(set(rates) - {0.0})  # nothing of it is the standard recipe itself
        if tried:
            found.append(_method_of_list(standard, name, tried))
    return found


def _method_of_list(standard: Recipe | None, name: str, tried: Sequence[float]) -> Method:
    words = name.replace("_", " ")
    if standard is None:
        raise ValueError(
            f"a list of {name}: expected a standard recipe among them, to which it is applied; the list 0 "
            f"({OPTIONS[name]} 0) leaves {words} out"
        )
    if len(tried) > 1 and not standard.validation:
        raise ValueError(
            f"validation=0: the best {words} is chosen on held-out images; hold some out, such as --validation 5000"
        )
    named = f"{standard.name.removesuffix('-standard')}-{name.replace('_', '-')}"
    changes: list[dict[str, Any]] = [{"name": named, name: value} for value in tried]
    return Method(words, [replace(standard, **one) for one in changes], name)


def _named(recipe: Recipe) -> str:
    """Return the method in words, with what is added to it."""
    added = [f"{name.replace('_', ' ')} = {getattr(recipe, name):g}" for name in OPTIONS if getattr(recipe, name)]
    return ", ".join([recipe.definition.label(), *added])


def _at_level(methods: Sequence[Method], level: float, seeds: Sequence[int] | None) -> list[Recipe]:
    """Return the recipes of one level, each once."""
    recipes = [replace(one, label_noise=level) for each in methods for one in each.candidates]
    return resolve(recipes, seeds, {})[0]


def measure_levels(plan: Plan, runs: Sequence[Run]) -> Study:
    """Measure what is missing of each level, and choose."""
    lines, comparisons = [], []
    for level, recipes in plan.grid.items():
        wanted = {one.key for one in recipes}
        comparison = measure([run for run in runs if run.recipe.key in wanted], plan.setting, find_reference(recipes))
        comparisons.append(comparison)
        for each in plan.methods:
            lines += _lines(each, level, comparison, plan.by)
    return Study(plan.by, list(plan.grid), lines, comparisons)


def _lines(method: Method, level: float, comparison: Comparison, by: str) -> list[Line]:
    """Return a line for each way in which a method answers."""
    candidates = [replace(one, label_noise=level) for one in method.candidates]
    found = [entry for entry in comparison.entries if any(same(entry.recipe, one) for one in candidates)]
    lines = []
    for answer in dict.fromkeys(entry.answer for entry in found):
        entries = [entry for entry in found if entry.answer == answer]
        chosen = best(entries, by, "validation") if len(entries) > 1 else entries[0]
        lines.append(Line(level, method.label, answer, method.setting, chosen, best(entries, by, "test"), entries))
    return lines


def best(entries: Sequence[Entry], by: str, split: str) -> Entry:
    """Return the entry whose mean over the seeds is best on a split, the first among equals."""
    sign = -1 if known_metric(by).lower_is_better else 1
    return max(entries, key=lambda entry: sign * entry.spread(by, split).mean)
