"""The label-noise study: methods over levels of noise, with settings that are chosen on held-out images."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation.comparing import heading, in_words
from subspaces.evaluation.metrics import METRICS
from subspaces.evaluation.statistics import CONFIDENCE
from subspaces.experiments import locks
from subspaces.experiments.evaluating.training import training_of
from subspaces.experiments.studies import tables
from subspaces.experiments.studies.compare import MARK, Comparison
from subspaces.experiments.studies.compare import measure as measure_level
from subspaces.experiments.studies.entries import Entry, headlines, in_columns, names, shown
from subspaces.experiments.studies.setting import (
    Folder,
    OneRecipe,
    Setting,
    check,
    find_reference,
    resolve,
    same,
    train_missing,
)
from subspaces.experiments.studies.tables import Figure, Result, Table
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run
from subspaces.text import nearest

SCHEMA = 1
LEVELS = (0.0, 0.2, 0.4, 0.6)
OPTIONS = {"dropout": "--dropout-rates", "label_smoothing": "--smoothing-rates"}
QUICK: dict[str, Any] = {"grid": (0.0, 0.1, 0.5, 0.9, 1.0), "triangle": 0}  # all that the table asks for
RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
LISTS: dict[str, tuple[float, ...]] = {"dropout": RATES, "label_smoothing": RATES}


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


def study_noise(
    recipe: OneRecipe | Sequence[OneRecipe],
    *,
    levels: Sequence[float] = LEVELS,
    lists: Mapping[str, Sequence[float]] | None = None,
    by: str = "accuracy",
    out: Folder = "noise",
    **settings: Any,
) -> "NoiseStudy":
    """Train and evaluate what is missing of methods at several levels of label noise, and write a table and a figure.

    Args:
        recipe: the methods: recipes or names of them, all on the same data.
        levels: the fractions of training labels that are drawn at random.
        lists: settings of standard training to try, by the name of the field; each list is a method of its own, of
            which the best value on held-out images is reported, and beside it, marked, the best on the test set.
        by: the metric that chooses.
        out: the folder for the table and the figure.
        settings: seeds, ensembles, dropout_passes, data, runs, show, tensorboard and changes, as in `compare`.

    Example:
        >>> study_noise(["digits-standard", "digits-line"], lists={}, levels=[0, 0.4], seeds=[0, 1])
    """
    return run(plan(recipe, Setting.of(out=out, **settings), levels, LISTS if lists is None else lists, by))


def plan(
    recipe: OneRecipe | Sequence[OneRecipe],
    setting: Setting,
    levels: Sequence[float],
    lists: Mapping[str, Sequence[float]],
    by: str,
) -> Plan:
    """Check everything and return what is to be done; nothing is."""
    if "label_noise" in setting.changes:
        raise ArgumentError(f"label_noise={setting.changes['label_noise']}: the study has levels of it instead")
    METRICS.find(by)
    if not isinstance(lists, Mapping):
        raise ArgumentError(f"lists={checks.shown(lists)}: expected a dict of lists, such as {{'dropout': [0.1, 0.2]}}")
    for name, given in (("levels", levels), *lists.items()):
        for each in checks.several(str(name), given, "a list of numbers, such as [0, 0.2]"):
            checks.number(str(name), each)
    base, resolved = resolve(recipe, replace(setting, seeds=None))
    methods, grid = methods_of(base, lists), dict[float, list[Recipe]]()
    for level in sorted({float(level) for level in levels}):
        recipes = [replace(one, label_noise=level) for each in methods for one in each.candidates]
        grid[level], _ = resolve(recipes, replace(setting, changes={}))
        check(grid[level], setting)
    if not grid:
        raise ArgumentError("no levels of label noise were given: expected one or more")
    return Plan(by, methods, grid, resolved)


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


def run(plan: Plan) -> "NoiseStudy":
    """Train, measure and write what is missing."""
    with locks.made(plan.setting.out):
        return measure(plan, train_missing(plan.recipes, plan.setting, evaluation=QUICK)).write(plan.setting.out)


# The table


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
    reference: Entry | None  # standard training at the same level

    def value(self, entry: Entry) -> float | None:
        """Return the setting of one of the candidates."""
        return None if self.setting is None else getattr(entry.recipe, self.setting)

    @property
    def chose(self) -> bool:
        """Whether there was something to choose from."""
        return len(self.candidates) > 1


@dataclass(frozen=True)
class NoiseStudy(Result):
    """All lines, by level, and the comparisons that they are taken from."""

    name: ClassVar[str] = "noise"
    by: str
    levels: list[float]
    lines: list[Line]
    comparisons: list[Comparison]

    @property
    def runs(self) -> Iterator[Run]:
        """The runs of all levels."""
        return (run for comparison in self.comparisons for run in comparison.runs)

    def tables(self) -> list[Table]:
        return [Table(self.heading(), columns(), [self.cells(line) for line in self.lines], left=3)]

    def draw(self) -> Figure:
        from subspaces.experiments.studies import figures

        drawn = {
            name: ([line.level for line in lines], [line.chosen for line in lines])
            for name, lines in self.own_lines().items()
        }
        chose = any(line.chose for line in self.lines)
        return figures.over_levels(self.heading(), drawn, len(self.comparisons[0].seeds), chose)

    def summary(self) -> dict[str, Any]:
        first = self.comparisons[0]
        return {
            "schema": SCHEMA,
            **{name: getattr(first.recipe, name) for name in ("dataset", "validation", "data_seed")},
            "levels": self.levels,
            "seeds": first.seeds,
            "chosen_by": self.by,
            "confidence": CONFIDENCE,
            "notes": self.notes(),
            "environments": tables.environments(self.runs),
            "lines": [self._line(line) for line in self.lines],
            "comparisons": [comparison.summary() for comparison in self.comparisons],
        }

    def _line(self, line: Line) -> dict[str, Any]:
        splits = ("test", "validation") if len(line.chosen.held_out) else ("test",)
        tried = line.candidates if line.setting is not None else []
        return {
            "label_noise": line.level,
            "method": line.method,
            "answer": line.answer,
            "setting": line.setting,
            "chosen": line.value(line.chosen),
            "chosen_on": "validation" if line.chose else None,
            "metrics": line.chosen.metrics(),
            "differences": line.chosen.differences(line.reference),
            "best_on_test": line.value(line.on_test),
            "metrics_best_on_test": line.on_test.metrics(),
            "candidates": [
                {"value": line.value(one), self.by: {split: one.spread(self.by, split).mean for split in splits}}
                for one in tried
            ],
            **({"stopping": line.chosen.stopping} if line.chosen.stopping else {}),
        }

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        return {"noise": [self._row(line) for line in self.lines]}

    def _row(self, line: Line) -> dict[str, Any]:
        """Return the row of a line; what the test set would choose only where something was chosen."""
        row: dict[str, Any] = {"label_noise": line.level, "method": line.method, "answer": line.answer}
        row |= {"setting": line.setting, "chosen": line.value(line.chosen), "n": line.chosen.count}
        row |= line.chosen.columns(line.reference)
        row["best_on_test"] = line.value(line.on_test) if line.chose else None
        for metric in names():
            best = in_columns(metric, line.on_test.spread(metric) if line.chose else None, "mean", "std")
            row |= {f"{name}_best_on_test": value for name, value in best.items()}
        return row

    def cells(self, line: Line) -> list[str]:
        """Return the cells of a line, with the difference to the reference on a line of its own."""
        value, marked = line.value(line.chosen), ["–", "–"]
        chosen = "–" if value is None else f"{value:g}"
        if value is not None and line.chose:
            accuracy = shown(line.on_test.spread("accuracy"), "accuracy")
            marked = [f"{line.value(line.on_test):g} {MARK}", f"{accuracy} {MARK}"]
        if line.chosen.stopping:
            chosen, _ = line.chosen.stopped("validation")
            marked = [f"{text} {MARK}" for text in line.chosen.stopped("test")]
        numbers = line.chosen.cells(line.reference)
        return [f"{100 * line.level:g}", line.method, line.answer, chosen, *numbers, *marked]

    def heading(self, told: str = "label noise") -> str:
        """Return what all methods share, and what is told of them over the levels."""
        first = self.comparisons[0]
        recipes = [entry.recipe for each in self.comparisons for entry in each.entries]
        return heading([*map(training_of, recipes)], told, f"{first.test_images:,} test images")

    def notes(self) -> list[str]:
        reported = [
            replace(one, entries=[line.chosen for line in self.lines if line.level == level])
            for level, one in zip(self.levels, self.comparisons, strict=True)
        ]
        found = list(dict.fromkeys(note for one in reported for note in one.common_notes()))
        if any(line.chose for line in self.lines):
            held_out = self.comparisons[0].recipe.validation
            found.append(
                f"“chosen” is the setting with the best {self.by} on {held_out:,} held-out images, mean over seeds, at "
                f"that level. {MARK} is the best on the test set itself, as the paper chooses: it looks too good."
            )
        if any(line.chosen.recipe.method == "early-stopping" for line in self.lines):
            found.append(
                "early-stopping always chooses its epoch by the accuracy on held-out images, whatever metric chooses "
                f"settings (here {self.by})."
            )
        return [
            *found,
            "Only training labels are noisy, the same for every method; held-out and test labels are clean.",
        ]

    def own_lines(self) -> dict[str, list[Line]]:
        """Return the lines of each method's own answer, and of ensembles of runs, over the levels."""
        found: dict[str, list[Line]] = {}
        for line in self.lines:
            first = next(each for each in self.lines if (each.level, each.method) == (line.level, line.method))
            if line is first or line.chosen.runs > 1:
                name = f"{line.method}: {line.answer}" if line.chosen.runs > 1 else line.method
                found.setdefault(name, []).append(line)
        return found


def columns() -> tuple[str, ...]:
    """Return the heads of the table."""
    titles = [each.title for each in headlines()]
    return ("noise %", "method", "answer", "chosen", *titles, f"on test {MARK}", f"accuracy % {MARK}")


# Measuring


def measure(plan: Plan, runs: Sequence[Run]) -> NoiseStudy:
    """Measure what is missing of each level, and choose."""
    lines, comparisons = [], []
    for level, recipes in plan.grid.items():
        wanted = {one.key for one in recipes}
        found = [run for run in runs if run.recipe.key in wanted]
        comparison = measure_level(found, plan.setting, find_reference(recipes), **QUICK)
        comparisons.append(comparison)
        for each in plan.methods:
            lines += _lines(each, level, comparison, plan.by)
    return NoiseStudy(plan.by, list(plan.grid), lines, comparisons)


def _lines(method: Method, level: float, comparison: Comparison, by: str) -> list[Line]:
    """Return a line for each way in which a method answers."""
    candidates = [replace(one, label_noise=level) for one in method.candidates]
    found = [entry for entry in comparison.entries if any(same(entry.recipe, one) for one in candidates)]
    lines = []
    for answer in dict.fromkeys(entry.words for entry in found):
        entries = [entry for entry in found if entry.words == answer]
        chosen = best(entries, by, "validation") if len(entries) > 1 else entries[0]
        two = chosen, best(entries, by, "test")
        lines.append(Line(level, method.label, answer, method.setting, *two, entries, comparison.reference))
    return lines


def best(entries: Sequence[Entry], by: str, split: str) -> Entry:
    """Return the entry whose mean over the seeds is best on a split, the first among equals."""
    sign = -1 if METRICS.find(by).lower_is_better else 1
    return max(entries, key=lambda entry: sign * entry.spread(by, split).mean)
