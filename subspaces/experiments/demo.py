"""The main job on data that ships with scikit-learn: one network and a simplex of networks, up to the report.

The digits are few and small, so that everything trains in seconds, and two fifths of the training
labels are drawn at random, so that it matters how a network treats what it cannot know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation.comparing import GroupAnswer, each_answer, groups_of
from subspaces.evaluation.display import bars, counted
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.rows import SPLIT
from subspaces.experiments.evaluating.evaluate import evaluate, evaluations_together
from subspaces.experiments.opening import evaluation_of
from subspaces.experiments.training import Recipe, Run, train
from subspaces.experiments.training.display import Mode
from subspaces.experiments.training.recipe import find
from subspaces.reports.page import write_report

CELLS = 15  # of the plane through the three vertices, in each direction
OTHERS = 1000  # the second network of a seed has this much more for a seed
STEPS = 6  # into how many pieces an edge of the triangle is cut
WIDTH = 6  # characters for a point of the picture
SHADES = " ░▒▓"  # from the lowest accuracy to the highest

NETWORK, VERTICES, MIDPOINT = "one network", "the simplex's vertices (mean)", "the simplex's midpoint"
POINTS, PAIR, STOPPED = "six points of the simplex", "two networks", "one network stopped early"
Accuracies = dict[tuple[int, ...], float]
"""Accuracy in percent by alpha times STEPS, which are three whole numbers."""


@dataclass(frozen=True)
class Setting:
    """What the demo trains for each seed: two networks, one that is stopped early, and a layerwise simplex of three."""

    seeds: int = 5
    epochs: int = 60
    label_noise: float = 0.4

    def __post_init__(self) -> None:
        checks.whole("seeds", self.seeds, 1, OTHERS)
        checks.whole("epochs", self.epochs, 1, 2**16 - 1)
        if not 0 <= self.label_noise < 1:
            raise ArgumentError(f"label_noise={self.label_noise}: expected a fraction of at least 0 and below 1")

    @property
    def early_epochs(self) -> int:
        """Epochs of early stopping: a third, as the third or fourth of 60 is the best."""
        return -(-self.epochs // 3)

    def recipe(self, name: str) -> Recipe:
        """Return one of the recipes for digits, with this many epochs and noisy labels."""
        return replace(find(name), epochs=self.epochs, label_noise=self.label_noise)


class Result(NamedTuple):
    """What the demo leaves: the answers in plain words, the picture's numbers, the simplexes, and the report.

    The report is None without plotly.
    """

    answers: dict[str, GroupAnswer]
    triangle: Accuracies
    simplexes: list[Run]
    report: Path | None


def run(setting: Setting, out: Path, show: Mode = "bar") -> Result:
    """Train, evaluate and compare, with everything in the folder `out`; what is there already is not done again."""
    seeds = range(setting.seeds)
    both = [*seeds, *(seed + OTHERS for seed in seeds)]
    early = replace(setting.recipe("digits-early-stopping"), epochs=setting.early_epochs)
    numbers: dict[str, Any] = {"out": out, "device": "cpu", "show": "quiet", "evaluate_every": 0}
    how: dict[str, Any] = {"device": "cpu", "progress": False}
    with bars(show == "bar") as shown:
        tick = counted(shown, "training and evaluating", 0, 5)
        networks = train(setting.recipe("digits-standard"), seeds=both, **numbers)
        tick(1)
        simplexes = train(setting.recipe("digits-simplex-layerwise"), seeds=seeds, **numbers)
        tick(1)
        stopped = train(early, seeds=seeds, **numbers)
        tick(1)
        evaluate(simplexes[:1], triangle=STEPS, plane=True, cells=CELLS, **how)
        tick(1)
        first, second = networks[: setting.seeds], networks[setting.seeds :]
        trained = [*first, *simplexes, *stopped]
        records = evaluate(trained, triangle=STEPS, **how)
        found = [evaluation_of(run, record) for run, record in zip(trained, records, strict=True)]
        by_recipe = [found[at : at + setting.seeds] for at in range(0, len(found), setting.seeds)]
        by_recipe[0] += evaluations_together(list(zip(first, second, strict=True)), found, to=out, **how)
        tick(1)
    return Result(_answers(*by_recipe), _triangle(by_recipe[1]), simplexes, _report([*chain(*by_recipe)], out))


def _report(evaluations: Sequence[Evaluation], out: Path) -> Path | None:
    try:
        return write_report(evaluations, out / "report.html")
    except ImportError:
        return None


def _answers(*by_recipe: Sequence[Evaluation]) -> dict[str, GroupAnswer]:
    """Return the answers, by what they are in plain words, of networks, simplexes and networks stopped early."""
    (networks,), (simplexes,), (stopped,) = map(groups_of, by_recipe)
    network, pair = each_answer(networks, together=True)
    vertices, midpoint, _, points = each_answer(simplexes, alone=True)
    (early,) = each_answer(stopped)
    named = (NETWORK, network), (VERTICES, vertices), (MIDPOINT, midpoint)
    return dict([*named, (PAIR, pair), (POINTS, points), (STOPPED, early)])


def _triangle(evaluations: Sequence[Evaluation]) -> Accuracies:
    """Return the mean accuracy over the seeds at the points of the simplex's grid."""
    found: dict[tuple[int, ...], list[float]] = {}
    for row in (row for each in evaluations for row in each.rows):
        if row.kind == "point" and row.data == SPLIT and row.role != "random":
            (alpha,) = row.alphas
            place = tuple(round(STEPS * share) for share in alpha)  # type: ignore[union-attr]
            found.setdefault(place, []).append(100 * row.metrics["accuracy"])
    return {place: fmean(values) for place, values in found.items()}


def headline(answers: Mapping[str, GroupAnswer]) -> str:
    """Return the finding in one sentence, whichever way it points."""
    midpoint, *others = (answers[name].by_seeds("accuracy") for name in (MIDPOINT, NETWORK, VERTICES))
    wins = sum(all(midpoint[seed] > each[seed] for each in others) for seed in midpoint)
    ours, network, vertices = (f"{100 * fmean(each.values()):.1f} %" for each in (midpoint, *others))
    return (
        f"The midpoint of a simplex of networks has {ours} of the test images right, one network {network}, the "
        f"simplex's vertices {vertices}: above both in {wins} of {len(midpoint)} seeds."
    )


def better(answers: Mapping[str, GroupAnswer]) -> str:
    """Return in words what is better than the midpoint, in accuracy and in calibration."""
    found = []
    for metric, sign in (("accuracy", 1), ("ece", -1)):
        means = {name: sign * one.spread(metric).mean for name, one in answers.items()}
        names = ", ".join(name for name in means if means[name] > means[MIDPOINT]) or "none"
        found.append(names.replace(STOPPED, f"{STOPPED} (by clean held-out images)"))
    return f"More accurate than the midpoint: {found[0]}. Better calibrated: {found[1]}."


def picture(triangle: Accuracies) -> list[str]:
    """Return a triangle of accuracies as lines of text: the vertices at its corners, the midpoint in brackets.

    The higher an accuracy, the darker the characters around it.
    """
    low, high = min(triangle.values()), max(triangle.values())
    lines = []
    for row in range(STEPS + 1):
        places = [(STEPS - row, row - column, column) for column in range(row + 1)]
        cells = "".join(_cell(triangle[place], low, high, len(set(place)) == 1) for place in places)
        lines.append((" " * ((STEPS - row) * WIDTH // 2) + cells).rstrip())
    return lines


def _cell(accuracy: float, low: float, high: float, middle: bool) -> str:
    level = (accuracy - low) / (high - low) if high > low else 1.0
    text = f"[{accuracy:.0f}]" if middle else f"{accuracy:.0f}"
    return text.center(WIDTH, SHADES[min(int(level * len(SHADES)), len(SHADES) - 1)])
