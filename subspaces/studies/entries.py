"""The ways in which trained methods answer, each with its quality for every seed and its cost."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from subspaces.evaluation import metrics, statistics
from subspaces.evaluation.answers import ANSWERS, Family
from subspaces.evaluation.cache import Measured
from subspaces.evaluation.points import Item
from subspaces.evaluation.record import Row
from subspaces.evaluation.statistics import Difference, Spread, paired, spread
from subspaces.reports.reading import Group, Reading
from subspaces.shapes import Point
from subspaces.training.config import Recipe
from subspaces.training.runs import Run, RunError

Scores = dict[str, dict[str, float]]
"""Metrics by split."""


@dataclass(frozen=True)
class Entry:
    """One way to answer: a method and how its networks are asked.

    Each value belongs to one seed, or to the several seeds of an ensemble of runs. Costs are in network-steps: one
    batch forward and backward through one network in training, and in networks that see each image at test time.
    """

    method: str
    answer: str
    recipe: Recipe
    runs: list[str]
    seeds: list[tuple[int, ...]]
    scores: list[Scores]
    steps: float
    networks: int
    stopping: list[Scores] = field(default_factory=list)  # of early stopping: what each split would choose

    @property
    def name(self) -> str:
        """The method and its answer."""
        return f"{self.method}, {self.answer}"

    @property
    def short(self) -> str:
        """The same in fewer words, where it is said otherwise that several networks are an ensemble."""
        answer = self.answer.removeprefix("ensemble of ")
        return self.method if answer == "network" else f"{self.method}: {answer}"

    @property
    def of_runs(self) -> bool:
        """Whether it is an ensemble of independent runs."""
        return any(len(seeds) > 1 for seeds in self.seeds)

    def values(self, metric: str, split: str = "test") -> list[float]:
        """Return a metric for each seed."""
        return [scores[split][metric] for scores in self.scores]

    def spread(self, metric: str, split: str = "test") -> Spread:
        """Return a metric over the seeds."""
        return spread(self.values(metric, split))

    def paired_with(self, reference: "Entry", metric: str, split: str = "test") -> list[float] | None:
        """Return what stands against each value: the reference's of that seed, or its mean over the ensemble's seeds.

        None where the reference lacks a seed.
        """
        if reference.of_runs:
            return self.values(metric, split) if reference is self else None
        known = {seeds[0]: value for seeds, value in zip(reference.seeds, reference.values(metric, split), strict=True)}
        if not all(seed in known for seeds in self.seeds for seed in seeds):
            return None
        return [sum(known[seed] for seed in seeds) / len(seeds) for seeds in self.seeds]

    def against(self, reference: "Entry | None", metric: str) -> Difference | None:
        """Return the paired difference to the reference; None for the reference itself, or without pairs."""
        if reference is None or self is reference:
            return None
        others = self.paired_with(reference, metric)
        return None if others is None else paired(self.values(metric), others)

    def relative_cost(self, reference: "Entry | None") -> float | None:
        """Return how many times the network-steps of the reference training takes."""
        return None if reference is None else self.steps / reference.steps

    def cells(self, reference: "Entry | None") -> list[str]:
        """Return the text of every metric, with the difference to the reference on a line of its own."""
        found = []
        for metric in names():
            difference = self.against(reference, metric)
            below = "" if difference is None else f"\n{statistics.shown_difference(difference, *unit(metric))}"
            found.append(shown(self.spread(metric), metric) + below)
        return found

    def columns(self, reference: "Entry | None") -> dict[str, float | None]:
        """Return every metric and its difference to the reference, for a row of a CSV file."""
        found: dict[str, float | None] = {}
        for metric in names():
            values, difference = self.spread(metric), self.against(reference, metric)
            found |= {f"{metric}_mean": values.mean, f"{metric}_std": values.std}
            found |= {
                f"{metric}_difference_{part}": getattr(difference, part, None) for part in ("mean", "low", "high")
            }
        return found

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Return every metric over the seeds, for a JSON file."""
        return {metric: dataclasses.asdict(self.spread(metric)) for metric in names()}

    def differences(self, reference: "Entry | None") -> dict[str, dict[str, Any] | None]:
        """Return the difference of every metric to the reference, for a JSON file."""
        found = {metric: self.against(reference, metric) for metric in names()}
        return {metric: None if each is None else dataclasses.asdict(each) for metric, each in found.items()}

    def stopped(self, split: str) -> tuple[str, str]:
        """Return the epochs of early stopping that a split chooses, and the accuracy on test images that they give."""
        chosen = [each[split] for each in self.stopping]
        epochs = ", ".join(f"{each['epoch']:g}" for each in chosen)
        return epochs, shown(spread([each["test_accuracy"] for each in chosen]), "accuracy")


def headlines() -> list[metrics.Metric]:
    """Return the metrics of a short table, also those that were added to the package's own."""
    return [each for each in metrics.of_task("classification") if each.headline]


def names() -> list[str]:
    """Return the names of these."""
    return [each.name for each in headlines()]


def titles() -> list[str]:
    """Return the heads of their columns."""
    return [each.title for each in headlines()]


def unit(name: str) -> tuple[float, int]:
    """Return what a metric is multiplied by where it is shown, and its digits."""
    found = metrics.metric(name)
    return found.scale, found.digits


def shown(values: Spread, metric: str) -> str:
    """Return mean ± standard deviation in the metric's unit."""
    return statistics.shown(values, *unit(metric))


def training_steps(recipe: Recipe, images: int) -> float:
    """Return the network-steps of a training run: epochs x batches in an epoch x networks in a step."""
    return recipe.epochs * -(-images // recipe.batch) * recipe.training_cost


def entries_of(group: Group, splits: Sequence[str], images: int, scaled: bool = False) -> list[Entry]:
    """Return the ways in which the runs of one recipe answer, the method's own first.

    Args:
        group: the runs.
        splits: the names of those that were measured.
        images: how many of them a run was trained on.
        scaled: whether to add each answer after temperature scaling, where held-out images have fitted one.
    """
    recipe, found = recipe_of(group), []
    for answered in group.runs[0].record.answers:
        rows = [{split: _row(run, answered.name, split) for split in splits} for run in group.runs]
        entry = Entry(
            method=group.label,
            answer=answered.words,
            recipe=recipe,
            runs=[run.folder.name for run in group.runs],
            seeds=[(seed,) for seed in group.seeds],
            scores=[{split: each[split].metrics for split in splits} for each in rows],
            steps=training_steps(recipe, images),
            networks=answered.networks,
            stopping=[_stopping(run) for run in group.runs if recipe.method == "early-stopping"],
        )
        found.append(entry)
        after = [{split: row.metrics | (row.scaled or {}) for split, row in each.items()} for each in rows]
        if scaled and all(any(row.scaled for row in each.values()) for each in rows):
            words = f"{answered.words}, temperature-scaled"
            found.append(dataclasses.replace(entry, answer=words, scores=after, stopping=[]))
    return found


def recipe_of(group: Group) -> Recipe:
    """Return the recipe of a group of runs."""
    assert group.recipe is not None
    return group.recipe


def run_of(reading: Reading) -> Run:
    """Return the run that was read."""
    assert reading.run is not None
    return reading.run


def _stopping(run: Reading) -> Scores:
    """Return epoch and accuracies by the split on which the epoch was chosen."""
    chosen = {choice["chosen_on"]: choice for choice in run_of(run).result["stopping"]}
    return {split: {k: v for k, v in choice.items() if k != "chosen_on"} for split, choice in chosen.items()}


def entry_of_ensembles(
    group: Group, members: Sequence[Sequence[int]], measured: Sequence[Measured], images: int
) -> Entry:
    """Return the entry of ensembles of independent runs; members are indices of the group's runs."""
    size = len(members[0])
    return Entry(
        method=group.label,
        answer=ANSWERS["runs"].words(Family(Point()), Item("runs", tuple(map(float, range(size))))),
        recipe=recipe_of(group),
        runs=[group.runs[index].folder.name for one in members for index in one],
        seeds=[tuple(group.seeds[index] for index in one) for one in members],
        scores=[one.metrics for one in measured],
        steps=size * training_steps(recipe_of(group), images),
        networks=size,
    )


def disjoint(count: int, size: int) -> list[list[int]]:
    """Return as many groups of `size` of the numbers below `count` as there are without one number in two of them.

    Ensembles with members in common would vary less than independent ones do.
    """
    return [list(range(start, start + size)) for start in range(0, count - size + 1, size)]


def _row(run: Reading, answer: str, split: str) -> Row:
    """Return the row of an answer."""
    found = run.record.answer(answer, split)
    if found is None:
        again = f"run `subspaces evaluate {run.folder}`"
        raise RunError(f"{run.folder} was not evaluated for {answer!r} on {split!r}: {again}")
    return found
