"""The label-noise study: methods over levels of noise, with settings that are chosen on held-out images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from subspaces import files, values
from subspaces.evaluation.dropout import PASSES
from subspaces.evaluation.metrics import metric as known_metric
from subspaces.evaluation.statistics import spread
from subspaces.studies.compare import Comparison, measured, trained
from subspaces.studies.entries import Entry
from subspaces.studies.setting import Folder, OneRecipe, Setting, check, prepared, reference_of, same, several
from subspaces.text import nearest
from subspaces.training.config import Recipe
from subspaces.training.display import Mode
from subspaces.training.runs import Run

LEVELS = (0.0, 0.2, 0.4, 0.6)
RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
LISTS: dict[str, tuple[float, ...]] = {"dropout": RATES, "label_smoothing": RATES}
OPTIONS = {"dropout": "--dropout-rates", "label_smoothing": "--smoothing-rates"}
QUICK: dict[str, Any] = {"grid": (0.0, 0.1, 0.5, 0.9, 1.0), "triangle": 0}  # all that the table asks for


@dataclass(frozen=True)
class Method:
    """What stands in one line: a recipe, or several that differ in one setting, of which the best is reported."""

    label: str
    candidates: list[Recipe]
    setting: str | None = None


@dataclass(frozen=True)
class Line:
    """A method's answer at one level: as chosen on held-out images, and as the test set itself would choose."""

    level: float
    method: str
    answer: str
    setting: str | None
    chosen: Entry
    on_test: Entry
    candidates: list[Entry]

    @property
    def value(self) -> float | None:
        """The setting that was chosen."""
        return None if self.setting is None else getattr(self.chosen.recipe, self.setting)

    @property
    def value_on_test(self) -> float | None:
        """The setting that the test set would choose, as the paper does."""
        return None if self.setting is None else getattr(self.on_test.recipe, self.setting)


@dataclass(frozen=True)
class Study:
    """All lines, by level, and the comparison that they are taken from."""

    by: str
    levels: list[float]
    lines: list[Line]
    comparisons: list[Comparison]
    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def study_noise(
    recipe: OneRecipe | Sequence[OneRecipe],
    *,
    levels: Sequence[float] = LEVELS,
    lists: Mapping[str, Sequence[float]] | None = None,
    by: str = "accuracy",
    seeds: Sequence[int] | None = None,
    ensembles: Sequence[int] | None = None,
    dropout_passes: int = PASSES,
    data: Folder | None = None,
    out: Folder = "runs",
    to: Folder = "noise",
    show: Mode = "bar",
    tensorboard: bool = True,
    **changes: Any,
) -> Study:
    """Train and evaluate what is missing of methods at several levels of label noise, and write a table and a figure.

    Args:
        recipe: the methods: recipes or names of them, all on the same data.
        levels: the fractions of training labels that are drawn at random.
        lists: settings of standard training to try, by the name of the field; each list is a method of its own, of
            which the best value on held-out images is reported, and beside it, marked, the best on the test set.
        by: the metric that chooses.
        seeds, ensembles, dropout_passes, data, out, to, show, tensorboard, changes: as in `compare`.

    Example:
        >>> study_noise(["digits-standard", "digits-line"], lists={}, levels=[0, 0.4], seeds=[0, 1])
    """
    from subspaces.studies import noise_tables

    setting = Setting(
        out=values.folder("out", out),
        to=values.folder("to", to),
        data=None if data is None else values.folder("data", data),
        ensembles=None if ensembles is None else several("ensembles", ensembles),
        passes=dropout_passes,
        show=show,
        tensorboard=tensorboard,
    )
    plan = planned(recipe, setting, levels, LISTS if lists is None else lists, by, seeds, changes)
    with files.made(plan.setting.to):
        runs = trained([one for recipes in plan.grid.values() for one in recipes], plan.setting)
        return noise_tables.write_all(assembled(plan, runs), plan.setting.to)


@dataclass(frozen=True)
class Plan:
    """All that a study is to do."""

    by: str
    methods: list[Method]
    grid: dict[float, list[Recipe]]  # by level
    setting: Setting


def planned(
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
    _check_lists(levels, lists)
    levels = [float(level) for level in levels]
    base, execution = prepared(recipe, None, changes)
    methods = methods_of(base, lists)
    setting = replace(setting, execution=execution, evaluation=QUICK)
    grid = {level: at_level(methods, level, seeds) for level in sorted(set(levels))}
    if not grid:
        raise ValueError("no levels of label noise were given: expected one or more")
    for recipes in grid.values():
        check(recipes, setting)
    return Plan(by, methods, grid, setting)


def _check_lists(levels: Any, lists: Any) -> None:
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
    standard = reference_of(recipes, None)
    for name, rates in lists.items():
        if name not in OPTIONS:
            raise ValueError(f"lists={{{name!r}: …}}: {nearest(name, OPTIONS)}")
        tried = sorted(set(rates) - {0.0})  # nothing of it is the standard recipe itself
        if not tried:
            continue
        if standard is None:
            raise ValueError(
                f"a list of {name}: expected a standard recipe among them, to which it is applied; the list 0 "
                f"({OPTIONS[name]} 0) leaves {name.replace('_', ' ')} out"
            )
        named = f"{standard.name.removesuffix('-standard')}-{name.replace('_', '-')}"
        changes: list[dict[str, Any]] = [{"name": named, name: value} for value in tried]
        found.append(Method(name.replace("_", " "), [replace(standard, **one) for one in changes], name))
        if len(tried) > 1 and not standard.validation:
            raise ValueError(
                f"validation=0: the best {name.replace('_', ' ')} is chosen on held-out images; hold some out, such "
                "as --validation 5000"
            )
    return found


def _named(recipe: Recipe) -> str:
    """Return the method in words, with what is added to it."""
    added = [f"{name.replace('_', ' ')} = {getattr(recipe, name):g}" for name in LISTS if getattr(recipe, name)]
    return ", ".join([recipe.definition.label(), *added])


def at_level(methods: Sequence[Method], level: float, seeds: Sequence[int] | None) -> list[Recipe]:
    """Return the recipes of one level, each once."""
    recipes = [replace(one, label_noise=level) for each in methods for one in each.candidates]
    return prepared(recipes, seeds, {})[0]


def assembled(plan: Plan, runs: Sequence[Run]) -> Study:
    """Measure what is missing of each level, and choose."""
    lines, comparisons = [], []
    for level, recipes in plan.grid.items():
        wanted = {one.key for one in recipes}
        comparison = measured([r for r in runs if r.recipe.key in wanted], plan.setting, reference_of(recipes, None))
        comparisons.append(comparison)
        for each in plan.methods:
            lines += _lines(each, level, comparison, plan.by)
    return Study(plan.by, list(plan.grid), lines, comparisons)


def _lines(method: Method, level: float, comparison: Comparison, by: str) -> list[Line]:
    """Return a line for each way in which a method answers."""
    candidates = [replace(one, label_noise=level) for one in method.candidates]
    found = [entry for entry in comparison.entries if any(same(entry.recipe, one) for one in candidates)]
    answers = list(dict.fromkeys(entry.answer for entry in found))
    lines = []
    for answer in answers:
        entries = [entry for entry in found if entry.answer == answer]
        chosen = best(entries, by, "validation") if len(entries) > 1 else entries[0]
        on_test = best(entries, by, "test")
        lines.append(Line(level, method.label, answer, method.setting, chosen, on_test, entries))
    return lines


def best(entries: Sequence[Entry], by: str, split: str) -> Entry:
    """Return the entry whose mean over the seeds is best on a split, the first among equals."""
    sign = -1 if known_metric(by).lower_is_better else 1
    return max(entries, key=lambda entry: sign * spread(entry.values(by, split)).mean)
