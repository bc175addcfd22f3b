"""The main job on data that ships with scikit-learn: networks and lines, side by side, up to the report.

The digits are few and small, so that everything trains in seconds, and two fifths of the training
labels are drawn at random, so that it matters how a network treats what it cannot know.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation import statistics
from subspaces.evaluation.comparing import GroupAnswer, each_answer, groups_of
from subspaces.evaluation.curves import described
from subspaces.evaluation.evaluation import Evaluation
from subspaces.experiments.evaluating.evaluate import evaluate, evaluations_together
from subspaces.experiments.opening import evaluation_of
from subspaces.experiments.training import Recipe, Run, train
from subspaces.experiments.training.display import Mode
from subspaces.experiments.training.recipe import find
from subspaces.reports.page import write_report

OTHERS = 1000  # the second network of a seed has this much more for a seed


@dataclass(frozen=True)
class Setting:
    """What the demo trains: two networks and one line for each seed."""

    seeds: int = 5
    epochs: int = 60
    label_noise: float = 0.4

    def __post_init__(self) -> None:
        checks.whole("seeds", self.seeds, 1, OTHERS)
        checks.whole("epochs", self.epochs, 1, 2**16 - 1)
        if not 0 <= self.label_noise < 1:
            raise ArgumentError(f"label_noise={self.label_noise}: expected a fraction of at least 0 and below 1")

    def recipe(self, name: str) -> Recipe:
        """Return one of the recipes for digits, with this many epochs and noisy labels."""
        return replace(find(name), epochs=self.epochs, label_noise=self.label_noise)


class Result(NamedTuple):
    """What the demo leaves: the answers in plain words, the runs of the lines, and the report (None without plotly)."""

    answers: dict[str, GroupAnswer]
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
    trained = [*first, *lines]
    evaluations = [evaluation_of(run, record) for run, record in zip(trained, records, strict=True)]
    pairs = list(zip(first, second, strict=True))
    evaluations += evaluations_together(pairs, evaluations, to=out, device="cpu", progress=bars)
    return Result(_answers(evaluations), lines, _report(evaluations, out))


def _report(evaluations: Sequence[Evaluation], out: Path) -> Path | None:
    try:
        return write_report(evaluations, out / "report.html")
    except ImportError:
        return None


def _answers(evaluations: Sequence[Evaluation]) -> dict[str, GroupAnswer]:
    """Return the answers by what they are in plain words."""
    standard, lines = groups_of(evaluations)
    network, together = each_answer(standard, together=True)
    ends, midpoint, pair = each_answer(lines, alone=True)
    return {
        "a network": network,
        "the line's ends": ends,
        "the line's midpoint": midpoint,
        "two networks": together,
        "two points of the line": pair,
    }


def findings(answers: Mapping[str, GroupAnswer]) -> list[str]:
    """Return in words what the numbers show, seed by seed, whichever way they point."""
    standard, ends, midpoint, deep, line = answers
    pairs = ((midpoint, standard), (midpoint, ends), (line, standard), (line, deep))
    return [f"{one} against {other}: {_finding(answers[one], answers[other])}" for one, other in pairs]


def _finding(first: GroupAnswer, second: GroupAnswer) -> str:
    found = []
    for metric in ("accuracy", "ece"):
        compared, shown = statistics.compare(first.frame, second.frame, metric), described(metric)
        assert compared is not None  # they have the same seeds
        values = compared.difference.values
        wins = sum(value < 0 if shown.lower_is_better else value > 0 for value in values)
        mean = shown.scale * compared.difference.mean
        found.append(f"{shown.label} {mean:+.1f} points, better in {wins} of {len(values)} seeds")
    return "; ".join(found)
