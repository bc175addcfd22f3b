"""Run folders as training and evaluation leave them, made up in a moment; the numbers are drawn at random."""

import base64
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import of_task
from subspaces.evaluation.points import Family, Item, items_of, kind
from subspaces.evaluation.rows import Answered, Choice, Corner, Drawn, Examples, Plane, Reliability, Row
from subspaces.experiments.training import RECIPES, Recipe, Run, run_files

Array = np.ndarray[Any, Any]
CLASSES, BINS = 10, 20
CELLS = (5, 4)  # of a plane, across and upwards
SEEDS = (0, 1, 2)


def run(
    out: Path, method: str = "line", splits: dict[str, int] | None = None, planes: bool = True, **fields: Any
) -> Path:
    """Make the folder of one run of a digits recipe with some fields changed, and return it."""
    recipe = dataclasses.replace(RECIPES[f"digits-{method}"], **{"epochs": 12, **fields})
    made = Run.under(out, recipe)
    folder = made.folder
    folder.mkdir(parents=True)
    run_files.write_json(folder / "config.json", recipe.to_dict(), recipe.key)
    start = {"time": "2026-01-02T03:04:05+00:00", "subspaces": "0.1", "commit": "0123456789ab", "python": "3.13.0"}
    start |= {"torch": "2.11.0", "hardware": "made up", "threads": 2, "execution": {"device": "cpu"}}
    run_files.write_json(folder / "environment.json", {"starts": [start]}, recipe.key)
    log = logged(recipe)
    made.begin_log(log)
    evaluated(recipe, folder.name, start, splits or {"test": 297}, planes).save(folder)
    accuracies = {f"{split}_accuracy": 0.7 for split in splits or ("test",)}
    made.finish({**log[-1], **accuracies}, {})
    return folder


def family(out: Path, seeds: tuple[int, ...] = SEEDS) -> dict[str, list[Path]]:
    """Make a standard run, lines with three betas, a layerwise line, a curve and simplexes, for each seed."""
    kinds: dict[str, dict[str, Any]] = {
        "standard": {"method": "standard"},
        "line": {"method": "line"},
        "line-beta0": {"method": "line", "beta": 0.0},
        "line-beta0.1": {"method": "line", "beta": 0.1},
        "line-layerwise": {"method": "line-layerwise"},
        "curve": {"method": "curve"},
        **{f"simplex{m}": {"method": "simplex", "vertices": m} for m in range(2, 7)},
    }
    return {name: [run(out, seed=seed, **fields) for seed in seeds] for name, fields in kinds.items()}


def _own(recipe: Recipe, name: str) -> Any:
    """Return a field of a subspace, also of what is none."""
    return {"vertices": 3, "beta": 1.0, "layerwise": False, **recipe.to_dict()}[name]


def logged(recipe: Recipe) -> list[dict[str, Any]]:
    """Return one row per epoch; the midpoint is tested in every fourth."""
    random, single = np.random.default_rng([1, recipe.seed]), recipe.result_shape().vertices == 1
    rows = []
    for epoch in range(1, recipe.epochs + 1):
        done, beta = epoch / recipe.epochs, _own(recipe, "beta")
        row: dict[str, Any] = {
            "epoch": epoch,
            "loss": 2.3 * np.exp(-2 * done) + 0.02 * random.random(),
            "train_accuracy": 0.2 + 0.5 * done + 0.02 * random.random(),
            "learning_rate": 0.1 * (1 + np.cos(np.pi * done)) / 2,
            "l2": 0.0 if single else 20 - (6 + 0.5 * random.random()) * done / (1 + beta),
            "cos2": 0.0 if single else (0.4 * done + 0.02 * random.random()) / (1 + 50 * beta),
            "images_per_second": 5e4,
        }
        rows.append(row | ({"test_accuracy": 0.3 + 0.4 * done} if epoch % 4 == 0 else {}))
    return rows


# The record


def row(
    random: np.random.Generator, split: str, images: int, role: str, alphas: list[Any], cs: Array, average: str | None
) -> Row:
    """Make up what a point, or the ensemble of several, has measured."""
    diversity = None if average is None else dict(zip(("tv", "disagreement"), random.uniform(0.1, 0.4, 2), strict=True))
    chances = np.arange(BINS) ** 2.0
    count = random.multinomial(images, chances / chances.sum())
    found = ((np.arange(BINS) + random.random(BINS)) / BINS, random.random(BINS))
    means = [[float(value) if n else None for value, n in zip(each, count, strict=True)] for each in found]
    metrics = {each.name: float(random.uniform(0.2, 0.9)) for each in of_task("classification")}
    about = ("point" if average is None else "ensemble", role, alphas, cs.tolist(), split, images, metrics)
    return Row(*about, Reliability(count.tolist(), *means), average, diversity, networks=len(cs))


def coefficients(recipe: Recipe, alpha: Any) -> list[float]:
    if recipe.result_shape().vertices == 1:
        return [1.0]
    if kind(recipe.result_shape()) == "simplex":
        return [float(a) for a in alpha]
    if recipe.method != "curve":
        return [1 - alpha, alpha]
    return [(1 - alpha) ** 2, 2 * alpha * (1 - alpha), alpha**2]


def wanted(recipe: Recipe) -> list[tuple[str, list[Any], bool]]:
    """Return role, alphas and whether it is an ensemble of everything that is measured."""
    m = _own(recipe, "vertices")
    if recipe.result_shape().vertices == 1:
        return [("midpoint", [0.0], False)]
    if kind(recipe.result_shape()) == "interval":
        grid = [k / 20 for k in range(21)]
        points = [("midpoint" if alpha == 0.5 else "along", [alpha], False) for alpha in grid]
        return [*points, *(("along", [alpha, 1 - alpha], True) for alpha in grid[:11])]
    corners = np.eye(m).tolist()
    edges = [((np.array(a) + b) / 2).tolist() for a, b in itertools.combinations(corners, 2)]
    random = np.random.default_rng(recipe.seed).dirichlet(np.ones(m), 6).tolist()
    grid = [[i / 6, j / 6, (6 - i - j) / 6] for i in range(7) for j in range(7 - i)] if m == 3 else []
    roles = (("vertex", corners), ("midpoint", [[1 / m] * m]), ("edge", edges), ("grid", grid), ("random", random))
    points = [(role, [alpha], False) for role, alphas in roles for alpha in alphas]
    return [*points, ("vertex", corners, True), ("random", random, True)]


def answered(recipe: Recipe) -> list[Answered]:
    """Return how the method answers, in words."""
    shape, definition = recipe.result_shape(), recipe.definition
    walk = [Item(role, tuple(map(tuple, alphas)), role) for role, alphas, _ in wanted(recipe) if role == "random"]
    family = Family(
        shape, [item for item in walk if len(item.places) > 1], middle=definition.middle(), vertices=definition.members
    )
    names = recipe.answers
    return items_of(family, names, ["probabilities"])[1]


def evaluated(
    recipe: Recipe, name: str, environment: dict[str, Any], splits: dict[str, int], planes: bool
) -> Evaluation:
    shape = recipe.result_shape()
    about = {"vertices": shape.vertices, "members": recipe.definition.members, "type": type(shape).__name__}
    record = Evaluation(
        name=name,
        shape={"kind": kind(shape), **about},
        task="classification",
        metrics=[metric.described for metric in of_task("classification")],
        answers=answered(recipe),
        recipe=recipe.to_dict(),
        environment=environment,
        dataset={"name": recipe.dataset, "classes": [str(c) for c in range(CLASSES)], "splits": splits},
        statistics={"images": 1200, "batch": recipe.batch},
    )
    for number, (split, images) in enumerate(splits.items()):
        random = np.random.default_rng([2, recipe.seed, shape.vertices, number, len(recipe.method)])
        for role, alphas, together in wanted(recipe):
            cs = np.array([coefficients(recipe, alpha) for alpha in alphas])
            for average in ("probabilities", "logits") if together else (None,):
                record.rows.append(row(random, split, images, role, alphas, cs, average))
        if split == "test" and shape.vertices > 1:
            record.examples = changing(random, record.rows, split)
    if planes and shape.vertices >= 2:
        record.planes.append(plane())
    if recipe.method in ("line", "curve"):
        record.choices.append(best(record, "validation" if "validation" in splits else "test"))
    return record


def best(record: Evaluation, split: str) -> Choice:
    """Choose the most accurate point on a split."""
    points = [row for row in record.rows if row.kind == "point"]
    chosen = max((row for row in points if row.split == split), key=lambda row: row.metrics["accuracy"])
    reported = {row.split: row.metrics for row in points if row.alphas == chosen.alphas}
    return Choice("point", "accuracy", split, split == "test", chosen.alphas[0], reported)


def changing(random: np.random.Generator, rows: list[Row], split: str, count: int = 12) -> Examples:
    """Make up images whose predictions change over the points."""
    points = [row for row in rows if row.kind == "point" and row.split == split]
    alphas = list({str(row.alphas): row.alphas[0] for row in points}.values())
    images = random.integers(0, 256, (count, 1, 8, 8), np.uint8)
    return Examples(
        split=split,
        alphas=alphas,
        size=list(images.shape[1:]),
        images=base64.b64encode(images.tobytes()).decode(),
        labels=random.integers(0, CLASSES, count).tolist(),
        indices=random.permutation(60)[:count].tolist(),
        predicted=random.integers(0, CLASSES, (len(alphas), count)).tolist(),
        confidence=random.uniform(0.1, 1, (len(alphas), count)).tolist(),
    )


def plane(number: int = 0, split: str = "test", count: int = 297) -> Plane:
    """Return a plane without any symmetry, with one cell that is not computed."""
    random, (across, up) = np.random.default_rng(number), CELLS
    deepest = 0.1 if number % 2 else 0.9  # a quarter of the median is more, or less
    accuracy, nll = (random.uniform(*ends, (up, across)).tolist() for ends in ((0.3, 0.9), (deepest, 3.5)))
    accuracy[2][1] = nll[2][1] = None
    nll[3][4] = 40.0  # far off the valley
    off = 0.375 * (number % 10)
    return Plane(
        name="ω₁, ω₂, other",
        corners=[Corner("ω₁", 0.0, 0.5), Corner("ω₂", 7.25, 0.0), Corner("other", 3.0, 5.5)],
        xs=np.linspace(-1, 9.5, across).tolist(),
        ys=np.linspace(-2, 7, up).tolist(),
        values={"accuracy": accuracy, "nll": nll},
        split=split,
        count=count,
        statistics_images=640 + number,
        drawn=[
            Drawn("the line", "path", [0.0, 4.0, 7.25], [0.5, 1.25, 0.0], [0.0, off, 0.0]),
            Drawn("its midpoint", "point", [4.0], [1.25], [off]),
        ],
    )
