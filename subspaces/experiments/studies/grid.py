"""A grid of comparisons: methods over label noise, or any other setting, with choices made on held-out images."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation.comparing import in_words
from subspaces.evaluation.metrics import METRICS
from subspaces.experiments.methods import integral
from subspaces.experiments.opening import training_of
from subspaces.experiments.studies.choices import NOISE, Choice, GridStudy
from subspaces.experiments.studies.compare import Comparison, ComparisonPlan
from subspaces.experiments.studies.setting import (
    Folder,
    OneRecipe,
    Plan,
    Setting,
    check,
    find_reference,
    resolve,
    run,
    same,
)
from subspaces.experiments.training.api import configure
from subspaces.experiments.training.recipe import Recipe, all_fields
from subspaces.experiments.training.runs import Run
from subspaces.text import nearest

LEVELS = (0.0, 0.2, 0.4, 0.6)
OPTIONS = {"dropout": "--dropout-rates", "label_smoothing": "--smoothing-rates"}
QUICK: dict[str, Any] = {"grid": (0.0, 0.1, 0.5, 0.9, 1.0), "triangle": 0}  # all that the table asks for
RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
LISTS: dict[str, Sequence[float]] = {"dropout": RATES, "label_smoothing": RATES}
INTEGRAL = ("mnist-standard", "mnist-line", "mnist-integral")
INTEGRAL_RATE = 0.02
"""The learning rate beside Integral: a difference over epsilon has a gradient about 1/epsilon as large as a network's,
and with the usual 0.1 the training of LeNet breaks down."""


class Method(NamedTuple):
    """A recipe, or several that differ in one setting, of which the best is reported."""

    label: str
    candidates: list[Recipe]
    setting: str | None = None


class Level(NamedTuple):
    """What is compared at one value of the grid, and the candidates of each method there."""

    value: float
    recipes: list[Recipe]
    candidates: list[list[Recipe]]


@dataclass(frozen=True)
class GridPlan(Plan[GridStudy]):
    """All that a study over a grid is to do."""

    over: str
    by: str
    methods: list[Method]
    levels: list[Level]
    name: str

    @property
    def recipes(self) -> list[Recipe]:
        return list({one.key: one for level in self.levels for one in level.recipes}.values())

    @property
    def evaluation(self) -> dict[str, Any]:
        return QUICK

    def measure(self, runs: Sequence[Run]) -> GridStudy:
        choices, comparisons = list[Choice](), list[Comparison]()
        for level in self.levels:
            reference = find_reference(level.recipes)
            plan = ComparisonPlan(self.setting, level.recipes, reference, scaled=False, about=QUICK)
            comparisons.append(plan.measure(runs))
            for method, candidates in zip(self.methods, level.candidates, strict=True):
                choices += self._choices(level.value, method, candidates, comparisons[-1])
        values = [level.value for level in self.levels]
        return GridStudy(self.over, self.by, values, choices, comparisons, name=self.name)

    def _choices(
        self, value: float, method: Method, candidates: Sequence[Recipe], comparison: Comparison
    ) -> Iterator[Choice]:
        """Yield what is chosen for each way in which a method answers."""
        found = [entry for entry in comparison.entries if any(same(entry.recipe, one) for one in candidates)]
        sign = -1 if METRICS.find(self.by).lower_is_better else 1
        for answer in dict.fromkeys(entry.words for entry in found):
            entries = [entry for entry in found if entry.words == answer]
            chosen = entries[0]
            if len(entries) > 1:  # the first among equals
                chosen = max(entries, key=lambda entry: sign * entry.spread(self.by, "validation").mean)
            yield Choice(value, method.label, answer, method.setting, chosen, entries, comparison.reference)


def study_grid(
    recipe: OneRecipe | Sequence[OneRecipe],
    over: str,
    values: Sequence[float],
    *,
    out: Folder | None = None,
    **settings: Any,
) -> GridStudy:
    """Train and evaluate what is missing of methods over a grid of a setting, and write a table and a figure.

    Args:
        recipe: the methods: recipes or names of them, all on the same data.
        over: the field of recipes that has a grid, such as "epochs", "beta" or "vertices"; methods that do not use it
            stay the same.
        values: the grid.
        out: the folder for the table and the figure, by default called like the field.
        settings: seeds, ensembles, data, runs, show and changes, as in `compare`.

    Example:
        >>> ss.studies.study_grid(["digits-standard", "digits-line"], "epochs", [20, 60], seeds=[0, 1])
    """
    setting = Setting.of(out=over if out is None else out, **settings)
    return run(plan(recipe, setting, values, {}, over=over, name=over))


def study_noise(
    recipe: OneRecipe | Sequence[OneRecipe],
    *,
    levels: Sequence[float] = LEVELS,
    lists: Mapping[str, Sequence[float]] | None = None,
    by: str = "accuracy",
    out: Folder = "noise",
    **settings: Any,
) -> GridStudy:
    """Compare methods over levels of label noise, the fractions of training labels that are drawn at random.

    Args:
        recipe: the methods: recipes or names of them, all on the same data.
        levels: the fractions.
        lists: settings of standard training to try, by the name of the field; each list is a method of its own, of
            which the best value on held-out images is reported. By default five of dropout and of label smoothing.
        by: the metric that chooses.
        out: the folder for the table and the figure.
        settings: as in `study_grid`.

    Example:
        >>> ss.studies.study_noise(["digits-standard", "digits-line"], lists={}, levels=[0, 0.4], seeds=[0, 1])
    """
    return run(plan(recipe, Setting.of(out=out, **settings), levels, LISTS if lists is None else lists, by))


def study_integral(
    recipe: OneRecipe | Sequence[OneRecipe] = INTEGRAL,
    *,
    levels: Sequence[float] = LEVELS,
    out: Folder = "integral",
    **settings: Any,
) -> GridStudy:
    """Compare Integral, whose ensemble of all networks of a line is one network, with others over label noise.

    One of the recipes has the method integral. The learning rate of all is 0.02 unless it is changed; the other
    arguments are those of `study_grid`.

    Example:
        >>> ss.studies.study_integral(levels=[0, 0.4], seeds=[0, 1], data="data")
    """
    return run(plan_integral(recipe, Setting.of(out=out, **settings), levels))


def plan(
    recipe: OneRecipe | Sequence[OneRecipe],
    setting: Setting,
    values: Sequence[float],
    lists: Mapping[str, Sequence[float]],
    by: str = "accuracy",
    over: str = NOISE,
    name: str = "noise",
) -> GridPlan:
    """Check everything and return what is to be done; nothing is."""
    if over in setting.changes:
        raise ArgumentError(f"{over}={setting.changes[over]}: the study has levels of it instead")
    METRICS.find(by)
    base, resolved = resolve(recipe, replace(setting, seeds=None))
    methods = methods_of(base, {name: _numbers(name, given) for name, given in lists.items()})
    every, planned = [one for each in methods for one in each.candidates], list[Level]()
    whole = isinstance(getattr(all_fields().get(over), "default", None), int)
    for level in sorted({int(each) if whole and each.is_integer() else each for each in _numbers("levels", values)}):
        found, known = configure(every, None, {over: level}, setting.data)[0], dict[str, Recipe]()
        for one in found:
            if (other := known.setdefault(one.key, one)) is not one:
                raise ArgumentError(f"{over}={level:g}: {other.name} and {one.name} are the same training there")
        there = iter(found)
        candidates = [[next(there) for _ in each.candidates] for each in methods]
        recipes, _ = resolve([one for some in candidates for one in some], replace(setting, changes={}))
        check(recipes, setting)
        planned.append(Level(level, recipes, candidates))
    if not planned:
        raise ArgumentError(f"no levels of {over.replace('_', ' ')} were given: expected one or more")
    return GridPlan(resolved, over, by, methods, planned, name)


def _numbers(name: str, given: Any) -> list[float]:
    return [checks.number(name, each) for each in checks.several(name, given, "a list of numbers, such as [0, 0.2]")]


def plan_integral(recipe: OneRecipe | Sequence[OneRecipe], setting: Setting, levels: Sequence[float]) -> GridPlan:
    """Check everything and return what is to be done for a study of Integral; nothing is."""
    changes = {"learning_rate": INTEGRAL_RATE, **setting.changes}
    found = plan(recipe, replace(setting, ensembles=(), changes=changes), levels, {}, name="integral")
    lines = [one for one in found.recipes if one.method == "integral"]
    if not lines:
        raise ArgumentError("no recipe has the method integral: expected one, such as mnist-integral")
    for one in lines:
        integral.steps(one.epsilon)
    return found


def methods_of(recipes: Sequence[Recipe], lists: Mapping[str, Sequence[float]]) -> list[Method]:
    """Return a method for each recipe, and one for each list of settings of the standard recipe."""
    words = [in_words(training_of(one), [name for name in OPTIONS if getattr(one, name)]) for one in recipes]
    labels = [word if words.count(word) == 1 else one.name for word, one in zip(words, recipes, strict=True)]
    found = [Method(label, [one]) for label, one in zip(labels, recipes, strict=True)]
    standard = find_reference(recipes)
    for name, rates in lists.items():
        if name not in OPTIONS:
            raise ArgumentError(f"lists={{{name!r}: …}}: {nearest(name, OPTIONS)}")
        tried = sorted(set(rates) - {0.0})  # nothing of it is the standard recipe itself
        if tried:
            found.append(_method_of_list(standard, name, tried))
    return found


def _method_of_list(standard: Recipe | None, name: str, tried: Sequence[float]) -> Method:
    words = name.replace("_", " ")
    if standard is None:
        raise ArgumentError(
            f"a list of {name}: expected a standard recipe among them, to which it is applied; the list 0 "
            f"({OPTIONS[name]} 0) leaves {words} out"
        )
    if len(tried) > 1 and not standard.validation:
        raise ArgumentError(
            f"validation=0: the best {words} is chosen on held-out images; hold some out, such as --validation 5000"
        )
    named = f"{standard.name.removesuffix('-standard')}-{name.replace('_', '-')}"
    changes: list[dict[str, Any]] = [{"name": named, name: value} for value in tried]
    return Method(words, [replace(standard, **one) for one in changes], name)
