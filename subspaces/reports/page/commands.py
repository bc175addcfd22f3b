"""The commands that make a run again."""

import itertools
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from subspaces.evaluation.changes import EXTRA
from subspaces.evaluation.corruptions import SEVERITIES
from subspaces.evaluation.points import GRID
from subspaces.evaluation.record import Plane, Record, Row
from subspaces.evaluation.settings import Settings
from subspaces.evaluation.shifted_data import Corruptions
from subspaces.experiments.training import RECIPES, Recipe, Run
from subspaces.reports.reading import Reading
from subspaces.text import listed


def changed(recipe: Recipe) -> tuple[str, dict[str, Any]]:
    """Return the known recipe to start from, and the fields that differ from it."""
    base = RECIPES.get(recipe.name) or min(RECIPES.values(), key=lambda known: len(_differing(known, recipe)))
    return base.name, _differing(base, recipe)


def _differing(base: Recipe, recipe: Recipe) -> dict[str, Any]:
    """Return what is to be changed: another method brings its own fields at their defaults."""
    own = {entry.name: entry.default for entry in recipe.definition.entries()}
    before = {**own, **base.to_dict()}
    if base.method != recipe.method and {base.definition.schedule, recipe.definition.schedule} != {None}:
        before["schedule"] = recipe.definition.schedule or Recipe.schedule
    return {name: value for name, value in recipe.to_dict().items() if value != before[name]}


def folders(runs: Iterable[Reading]) -> dict[str, str]:
    """Return where each run is after it was made again, by the label that planes give it, if only one has it."""
    recipes = [run.recipe for run in runs if run.recipe is not None]
    labels = [(f"{recipe.name} seed {recipe.seed}", _folder(recipe)) for recipe in recipes]
    count = Counter(label for label, _ in labels)
    return {label: folder for label, folder in labels if count[label] == 1}


def _folder(recipe: Recipe) -> str:
    return str(Run.under("runs", recipe).folder)


def reproduce(run: Reading, known: Mapping[str, str]) -> list[str]:
    """Return the lines, for a shell, that train and evaluate a run again; `known` are the folders of other runs."""
    recipe = run.recipe
    if recipe is None:
        return []
    base, fields = changed(recipe)
    words = ["subspaces", "train", base]
    for name, value in fields.items():
        option = name.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
    grid = list(run.points(run.record.rows[0].split)) if run.interval and run.record.rows else []
    spaced = _grid(grid)
    evaluate = ["subspaces", "evaluate", _folder(recipe), *(spaced or []), *_options(run, recipe)]
    planes = {plane.name: _plane(plane, run, recipe, known) for plane in run.record.planes}
    shifted = [*_shifted(run.record), *_outliers(run.record)]
    more = [*(plane for plane in planes.values() if plane is not None), *shifted]
    evaluations = [[*evaluate, *options] for options in more] or [evaluate]
    points = ", ".join(f"{alpha:g}" for alpha in grid)
    python = f"# its points are not evenly spaced; in Python: ss.evaluate({_folder(recipe)!r}, grid=[{points}])"
    missing = [
        f"# the plane through {' '.join(name.split())} also needs --plane-through RUN, which is not known here"
        for name, options in planes.items()
        if options is None
    ]
    notes = [*([python] if spaced is None else []), *missing, *_given(run.record)]
    return [shlex.join(words), *map(shlex.join, evaluations), *notes]


def _options(run: Reading, recipe: Recipe) -> list[str]:
    """Return the options that differ from those of a plain evaluation."""
    record = run.record
    points = [row for row in record.rows if row.kind == "point" and row.split == record.rows[0].split]
    options = _simplex(points, run.vertices) if any(row.role == "vertex" for row in points) else []
    if any(choice.on_test for choice in record.choices):
        options += ["--choose-on", "test"]
    if record.statistics.get("batches"):
        options += ["--statistics-batches", str(record.statistics["batches"])]
    counts = {math.ceil(check.statistics_images / recipe.batch) for check in record.checks}
    options += [word for count in sorted(counts) for word in ("--check-statistics", str(count))]
    execution = record.environment.get("execution", {})
    usual = "bfloat16" if str(execution.get("device")).startswith("cuda") else "float32"
    precision = execution.get("precision", usual)
    return options if precision == usual else [*options, "--precision", str(precision)]


def _simplex(points: Sequence[Row], vertices: int) -> list[str]:
    """Return the options for other numbers of points of a simplex."""
    random = sum(row.role == "random" for row in points)
    shares = [share for row in points if row.role == "grid" for a in row.alphas if isinstance(a, list) for share in a]
    least = min((share for share in shares if share > 1e-9), default=math.inf)
    pieces = round(1 / least)
    options = [] if random == Settings.random else ["--random", str(random)]
    return options if vertices != 3 or pieces == Settings.triangle else [*options, "--triangle", str(pieces)]


def _grid(grid: Sequence[float]) -> list[str] | None:
    """Return the option for the points of a line or curve; None where they are not evenly spaced."""
    if tuple(grid) in (GRID, ()):
        return []
    for even in (list(grid), [alpha for alpha in grid if alpha != 0.5]):  # the midpoint is measured with every grid
        steps = [b - a for a, b in itertools.pairwise(even)] or [1.0]
        if all(math.isclose(step, steps[0], abs_tol=1e-6) for step in steps):
            return ["--grid", *(f"{number:g}" for number in (even[0], even[-1], steps[0]))]
    return None


def _plane(plane: Plane, run: Reading, recipe: Recipe, known: Mapping[str, str]) -> list[str] | None:
    """Return the options of a plane; None where it goes through a run that is not known."""
    others = [_other(corner.label, known) for corner in plane.corners if " seed " in corner.label]
    named = [name for name in others if name is not None]
    if len(named) < len(others):
        return None
    options = [word for name in named for word in ("--plane-through", name)] or ["--plane"]
    if len(plane.xs) != Settings.cells:
        options += ["--cells", str(len(plane.xs))]
    batches = math.ceil(plane.statistics_images / recipe.batch)
    statistics = run.record.statistics
    whole = not statistics.get("batches") and plane.statistics_images == statistics.get("images")
    if batches != Settings.plane_statistics_batches and not whole:
        options += ["--plane-statistics-batches", str(batches)]
    return options


def _shifted(record: Record) -> list[list[str]]:
    """Return the options that measure shifted data, for each source and for corruptions of the same severities."""
    found: dict[tuple[str, str], list[int]] = {}
    for one in record.shifts:
        if one.source != "given":
            found.setdefault((one.source, one.name), []).append(one.severity)
    alike: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (source, name), severities in found.items():
        alike.setdefault((source, tuple(sorted(severities))), []).append(name)
    return [
        [*_corruptions(names), *_strengths(severities), *_source(source)]
        for (source, severities), names in alike.items()
    ]


def _corruptions(names: Sequence[str]) -> list[str]:
    for short in ("all", EXTRA):
        if set(names) == set(Corruptions(short).names or ()):
            return ["--corruptions", short]
    return [word for name in names for word in ("--corruptions", name)]


def _strengths(severities: Sequence[int]) -> list[str]:
    return [] if tuple(severities) == SEVERITIES else ["--severities", *map(str, severities)]


def _source(source: str) -> list[str]:
    """Return the options for corruptions of another seed, or of a folder, of which the name is known."""
    made, _, seed = source.partition(", seed ")
    if made != "made":
        return ["--corrupted", source]
    return ["--corruption-seed", seed] if seed else []


def _outliers(record: Record) -> list[list[str]]:
    words = [word for one in record.outliers if one.source == "data" for word in ("--outliers", one.name)]
    return [words] if words else []


def _given(record: Record) -> list[str]:
    """Return what is said of loaders, which no command line has."""
    sets = {
        "corruptions": list(dict.fromkeys(one.name for one in record.shifts if one.source == "given")),
        "outliers": [one.name for one in record.outliers if one.source == "given"],
    }
    return [
        f"# {' '.join(listed(names).split())}: given by loaders of your own; in Python: ss.evaluate(…, {option}={{…}})"
        for option, names in sets.items()
        if names
    ]


def _other(label: str, known: Mapping[str, str]) -> str | None:
    """Return how a network of another run is named on the command line."""
    for name, folder in known.items():
        if label in (name, f"{name} midpoint"):
            return folder
        if label.startswith(f"{name} at "):
            return f"{folder}:{label.removeprefix(f'{name} at ')}"
    return None
