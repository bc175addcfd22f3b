"""The main job on data that ships with scikit-learn: networks and lines, side by side, up to the report.

The digits are few and small, so that everything trains in seconds, and two fifths of the training
labels are drawn at random, so that it matters how a network treats what it cannot know.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from subspaces.core import checks, randomness
from subspaces.errors import ArgumentError
from subspaces.evaluation.cache import Measured
from subspaces.experiments.evaluating.ensembles import evaluate_together
from subspaces.experiments.evaluating.evaluate import evaluate
from subspaces.experiments.training import Recipe, Run, train
from subspaces.experiments.training.display import Mode
from subspaces.experiments.training.recipes import find
from subspaces.reports.answers import Answer, answers, compare
from subspaces.reports.measures import measure
from subspaces.reports.page import write_page
from subspaces.reports.reading import Group, Reading, grouped

SPLIT = "test"
OTHERS = 1000  # the second network of a seed has this much more for a seed


@dataclass(frozen=True)
class Setting:
    """What the demo trains: two networks and one line for each seed."""

    seeds: int = 5
    epochs: int = 60
    label_noise: float = 0.4

    def __post_init__(self) -> None:
        checks.whole("seeds", self.seeds, 1, OTHERS)
        checks.whole("epochs", self.epochs, 1, randomness.EPOCHS - 1)
        if not 0 <= self.label_noise < 1:
            raise ArgumentError(f"label_noise={self.label_noise}: expected a fraction of at least 0 and below 1")

    def recipe(self, name: str) -> Recipe:
        """Return one of the recipes for digits, with this many epochs and noisy labels."""
        return replace(find(name), epochs=self.epochs, label_noise=self.label_noise)


class Result(NamedTuple):
    """What the demo leaves: the ways to predict, the runs of the lines, and the report (None without plotly)."""

    answers: list[Answer]
    lines: list[Run]
    report: Path | None


def run(setting: Setting, out: Path, show: Mode = "bar") -> Result:
    """Train, evaluate and compare, with everything in the folder `out`; what is there already is not done again."""
    seeds, bars = range(setting.seeds), show == "bar"
    standard, line = setting.recipe("digits-standard"), setting.recipe("digits-line")
    numbers: dict[str, Any] = {"out": out, "device": "cpu", "show": show, "tensorboard": False, "evaluate_every": 0}
    networks = train(standard, seeds=[*seeds, *(seed + OTHERS for seed in seeds)], **numbers)
    first, second = networks[: setting.seeds], networks[setting.seeds :]
    lines = train(line, seeds=seeds, **numbers)
    records = evaluate([*first, *lines], device="cpu", progress=bars)
    records[len(first)] = evaluate(lines[0], device="cpu", through=[first[0].folder], progress=bars)
    pairs = evaluate_together(list(zip(first, second, strict=True)), to=out, device="cpu", progress=bars)
    groups = grouped(Reading(run, record) for run, record in zip([*first, *lines], records, strict=True))
    return Result(_answers(groups, pairs), lines, _report(groups, pairs, out))


def _report(groups: Sequence[Group], pairs: Sequence[Measured], out: Path) -> Path | None:
    try:
        return write_page(groups, out / "report.html", pairs)
    except ImportError:
        return None


def _answers(groups: Sequence[Group], pairs: Sequence[Measured]) -> list[Answer]:
    """Return the ways to predict, in plain words."""
    standard, lines = groups
    network, together = answers(standard, SPLIT, pairs)
    ends, midpoint, pair = answers(lines, SPLIT)
    named = {
        "a network": network,
        "the line's ends": ends,
        "the line's midpoint": midpoint,
        "two networks": together,
        "two points of the line": pair,
    }
    return [replace(answer, name=name) for name, answer in named.items()]


def findings(found: Sequence[Answer]) -> list[str]:
    """Say in words what the numbers show, seed by seed, whichever way they point."""
    standard, ends, midpoint, deep, line = found
    return [_finding(*pair) for pair in ((midpoint, standard), (midpoint, ends), (line, standard), (line, deep))]


def _finding(first: Answer, second: Answer) -> str:
    said = []
    for metric in ("accuracy", "ece"):
        compared, shown = compare(first, second, metric), measure(metric)
        assert compared is not None  # they have the same seeds
        values = compared.difference.values
        wins = sum(value < 0 if shown.lower_is_better else value > 0 for value in values)
        mean = shown.scale * compared.difference.mean
        said.append(f"{shown.label} {mean:+.1f} points, better in {wins} of {len(values)} seeds")
    return f"{first.name} against {second.name}: {'; '.join(said)}"
