"""The main job on data that ships with scikit-learn: networks and lines, side by side, up to the report.

The digits are few and small, so that everything trains in seconds, and two fifths of the training
labels are drawn at random, so that it matters how a network treats what it cannot know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subspaces import streams, values
from subspaces.evaluation import evaluate
from subspaces.evaluation.together import evaluate_together
from subspaces.report.answers import row_of
from subspaces.report.page import write_report
from subspaces.report.reading import Reading
from subspaces.training import Recipe, Run, train
from subspaces.training.display import Mode
from subspaces.training.recipes import find

OTHERS = 1000  # the second network of a seed has this much more for a seed


@dataclass(frozen=True)
class Setting:
    """What the demo trains: two networks and one line for each seed."""

    seeds: int = 5
    epochs: int = 60
    label_noise: float = 0.4

    def __post_init__(self) -> None:
        values.whole("seeds", self.seeds, 1, OTHERS)
        values.whole("epochs", self.epochs, 1, streams.EPOCHS - 1)
        if not 0 <= self.label_noise < 1:
            raise ValueError(f"label_noise={self.label_noise}: expected a fraction of at least 0 and below 1")

    def recipe(self, name: str) -> Recipe:
        """Return one of the recipes for digits, with this many epochs and noisy labels."""
        return replace(find(name), epochs=self.epochs, label_noise=self.label_noise)


@dataclass(frozen=True)
class Row:
    """One line of the result: a way to predict, its quality in percent for each seed, and its cost."""

    name: str
    accuracy: Tensor  # [seeds]
    ece: Tensor  # [seeds]
    networks_trained: int
    networks_at_test: int


class Result(NamedTuple):
    """What the demo leaves: the table, the run folders of the lines, and the report (None without plotly)."""

    rows: list[Row]
    lines: list[Run]
    report: Path | None


def run(setting: Setting, out: Path, show: Mode = "bar") -> Result:
    """Train, evaluate and compare, with everything in the folder `out`; what is there already is not done again."""
    seeds = range(setting.seeds)
    standard, line = setting.recipe("digits-standard"), setting.recipe("digits-line")
    numbers: dict[str, Any] = {"out": out, "device": "cpu", "show": show, "tensorboard": False, "evaluate_every": 0}
    first, lines = (train(recipe, seeds=seeds, **numbers) for recipe in (standard, line))
    second = train(standard, seeds=[seed + OTHERS for seed in seeds], **numbers)
    bars = show == "bar"
    evaluate([*first, *lines], device="cpu", progress=bars)
    evaluate(lines[0], device="cpu", through=[first[0].folder], progress=bars)
    pairs = evaluate_together(list(zip(first, second, strict=True)), to=out, device="cpu", progress=bars)
    together = [pair.metrics["test"] for pair in pairs]
    return Result(_rows(first, lines, together), lines, _report([*first, *lines], out))


def _report(runs: Sequence[Run], out: Path) -> Path | None:
    try:
        return write_report([run.folder for run in runs], out / "report.html")
    except ImportError:
        return None


def _rows(networks: Sequence[Run], lines: Sequence[Run], together: Sequence[dict[str, float]]) -> list[Row]:
    """Return the table from what was measured."""

    def column(numbers: Sequence[dict[str, float]], metric: str) -> Tensor:
        return 100 * torch.tensor([each[metric] for each in numbers])

    def row(name: str, numbers: Sequence[dict[str, float]], trained: int, used: int) -> Row:
        return Row(name, column(numbers, "accuracy"), column(numbers, "ece"), trained, used)

    records = [Reading(run.folder) for run in lines]
    singles = [center for run in networks if (center := row_of(Reading(run.folder), "midpoint", "test"))]
    points = [reading.points("test") for reading in records]
    pairs = [reading.pairs("test") for reading in records]
    ends = [{name: (p[0.0].metrics[name] + p[1.0].metrics[name]) / 2 for name in p[0.0].metrics} for p in points]
    return [
        row("a network", [single.metrics for single in singles], 1, 1),
        row("the line's ends", ends, 1, 1),
        row("the line's midpoint", [p[0.5].metrics for p in points], 1, 1),
        row("two networks", together, 2, 2),
        row("two points of the line", [p[0.1].metrics for p in pairs], 1, 2),
    ]


def findings(rows: list[Row]) -> list[str]:
    """Say in words what the numbers show, seed by seed, whichever way they point."""
    standard, ends, midpoint, deep, line = rows
    comparisons = [(midpoint, standard), (midpoint, ends), (line, standard), (line, deep)]
    return [_compare(first, second) for first, second in comparisons]


def _compare(first: Row, second: Row) -> str:
    def phrase(difference: Tensor, unit: str, better_is: int) -> str:
        wins = int((difference * better_is > 0).sum())
        return f"{unit} {difference.mean():+.1f} points, better in {wins} of {len(difference)} seeds"

    return (
        f"{first.name} against {second.name}: "
        f"{phrase(first.accuracy - second.accuracy, 'accuracy', 1)}; {phrase(first.ece - second.ece, 'ECE', -1)}"
    )
