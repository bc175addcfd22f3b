"""The rows of every table: how trained methods answer on each split, over the seeds, and what that costs."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from subspaces.evaluation import comparing, group_answers, statistics
from subspaces.evaluation.answers import RUNS
from subspaces.evaluation.comparing import Group
from subspaces.evaluation.group_answers import SCALED, GroupAnswer, each_answer
from subspaces.evaluation.metrics import METRICS, Metric, of_task
from subspaces.evaluation.statistics import Difference, Spread, spread
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run, RunError

if TYPE_CHECKING:
    import pandas as pd

Scores = dict[str, dict[str, float]]
"""Metrics by split."""


@dataclass(frozen=True, eq=False)
class Entry(GroupAnswer):
    """One answer of a method over the seeds, and what it costs.

    Costs are in network-steps: one batch forward and backward through one network in training, and in networks that
    see each image at test time.
    """

    recipe: Recipe  # with the first seed
    held_out: "pd.DataFrame"  # the same as `frame` on held-out images, empty where there are none
    steps: float
    stopping: list[Scores] = field(default_factory=list)  # of early stopping: what each split would choose

    @property
    def method(self) -> str:
        """The method in words."""
        return self.group.label

    @property
    def named(self) -> str:
        """The method and its answer."""
        return f"{self.method}, {self.words}"

    @property
    def count(self) -> int:
        """Over how many seeds it is, or ensembles of several."""
        return len(self.frame)

    def spread(self, metric: str, split: str = "test") -> Spread:
        """Return a metric over the seeds."""
        return super().spread(metric) if split == "test" else replace(self, frame=self.held_out).spread(metric)

    def values(self, metric: str) -> list[float]:
        """Return a metric for each seed."""
        return self.spread(metric).values

    def by_seed(self, metric: str) -> dict[int, float]:
        """Return a metric by the first seed of each row."""
        return {seeds[0]: value for seeds, value in self.by_seeds(metric).items()}

    def against(self, reference: "Entry | None", metric: str) -> Difference | None:
        """Return the difference to the reference, paired by the seed; None for itself, or where that lacks a seed."""
        if reference is None or self is reference:
            return None
        found = comparing.compare(self.frame, reference.frame, metric)
        return found.difference if found is not None and found.seeds == self.seeds else None

    def relative_cost(self, reference: "Entry | None") -> float | None:
        """Return how many times the network-steps of the reference training takes."""
        return None if reference is None else self.steps / reference.steps

    def cells(self, reference: "Entry | None") -> list[str]:
        """Return the text of every metric, with the difference to the reference on a line of its own."""
        found = []
        for each in headlines():
            difference = self.against(reference, each.name)
            unit = each.scale, each.digits
            below = "" if difference is None else f"\n{statistics.shown_difference(difference, *unit)}"
            found.append(statistics.shown(self.spread(each.name), *unit) + below)
        return found

    def columns(self, reference: "Entry | None") -> dict[str, float | None]:
        """Return every metric and its difference to the reference, for a row of a CSV file."""
        found: dict[str, float | None] = {}
        for metric in names():
            found |= in_columns(metric, self.spread(metric), "mean", "std")
            found |= in_columns(f"{metric}_difference", self.against(reference, metric), "mean", "low", "high")
        return found

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Return every metric over the seeds, for a JSON file."""
        return {metric: asdict(self.spread(metric)) for metric in names()}

    def differences(self, reference: "Entry | None") -> dict[str, dict[str, Any] | None]:
        """Return the difference of every metric to the reference, for a JSON file."""
        found = {metric: self.against(reference, metric) for metric in names()}
        return {metric: None if each is None else asdict(each) for metric, each in found.items()}

    def stopped(self, split: str) -> tuple[str, str]:
        """Return the epochs of early stopping that a split chooses, and the accuracy on test images that they give."""
        chosen = [each[split] for each in self.stopping]
        epochs = ", ".join(f"{each['epoch']:g}" for each in chosen)
        return epochs, shown(spread([each["test_accuracy"] for each in chosen]), "accuracy")


def headlines() -> list[Metric]:
    """Return the metrics of a short table, also those that were added to the package's own."""
    return [each for each in of_task("classification") if each.headline]


def names() -> list[str]:
    """Return the names of these."""
    return [each.name for each in headlines()]


def shown(values: Spread, metric: str) -> str:
    """Return mean ± standard deviation in the metric's unit."""
    found = METRICS[metric]
    return statistics.shown(values, found.scale, found.digits)


def in_columns(name: str, values: Spread | Difference | None, *parts: str) -> dict[str, float | None]:
    """Return some parts of a number over the seeds as columns of a CSV file, empty where it is not known."""
    return {f"{name}_{part}": getattr(values, part, None) for part in parts}


def training_steps(recipe: Recipe, images: int) -> float:
    """Return the network-steps of a training run: epochs x batches in an epoch x networks in a step."""
    return recipe.epochs * -(-images // recipe.batch) * recipe.training_cost


def entries_of(
    group: Group, runs: Mapping[str, Run], splits: Sequence[str], images: int, scaled: bool = False
) -> list[Entry]:
    """Return the answers of the runs of one recipe that were trained on so many images, the method's own first.

    Then come these after temperature scaling, where that is asked for and held-out images have fitted a temperature,
    and the group's ensembles of runs. `runs` has the runs by the names of their evaluations.
    """
    for one in group.evaluations:
        for split, wanted in itertools.product(splits, group.evaluations[0].answers):
            if one.answer(wanted.name, split) is None:
                folder = comparing.place(one)
                raise RunError(f"{folder} has no {wanted.words} on {split!r}: run `subspaces evaluate {folder}`")
    first = runs[group.evaluations[0].name].recipe
    steps = training_steps(first, images)
    others = [group_answers.answers(group, split, scaled=scaled, together=True) for split in splits if split != "test"]
    stopping = [_stopping(runs[each.name]) for each in group.evaluations if first.method == "early-stopping"]
    found = []
    for each in each_answer(group, scaled=scaled, together=True):
        held_out = others[0][others[0]["words"] == each.words] if others else each.frame.iloc[:0]
        stopped = [] if each.kind in (SCALED, RUNS) else stopping
        found.append(Entry(**vars(each), recipe=first, held_out=held_out, steps=each.runs * steps, stopping=stopped))
    return found


def _stopping(run: Run) -> Scores:
    """Return epoch and accuracies by the split on which the epoch was chosen."""
    chosen = {choice["chosen_on"]: choice for choice in run.result["stopping"]}
    return {split: {k: v for k, v in choice.items() if k != "chosen_on"} for split, choice in chosen.items()}
