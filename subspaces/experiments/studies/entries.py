"""The lines of every table: how trained methods answer on each split, over the seeds, and what that costs."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from subspaces.evaluation import metrics, statistics
from subspaces.evaluation.cache import Measured
from subspaces.evaluation.statistics import Difference, Spread, spread
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import Run
from subspaces.reports import answers
from subspaces.reports.answers import Answer, compare
from subspaces.reports.reading import Group, Reading

Scores = dict[str, dict[str, float]]
"""Metrics by split."""


@dataclass(frozen=True)
class Entry(Answer):
    """An answer on the test images, what it is on held-out ones, and what it costs.

    Costs are in network-steps: one batch forward and backward through one network in training, and in networks that
    see each image at test time.
    """

    steps: float = 0.0
    held_out: answers.Scores = field(default_factory=dict)
    stopping: list[Scores] = field(default_factory=list)  # of early stopping: what each split would choose

    @property
    def named(self) -> str:
        """The method and its answer."""
        return f"{self.group.label}, {self.name}"

    @property
    def recipe(self) -> Recipe:
        """What was trained, with the first seed."""
        return recipe_of(self.group)

    def spread(self, metric: str, split: str = "test") -> Spread:
        """Return a metric over the seeds."""
        return super().spread(metric) if split == "test" else replace(self, by_seeds=self.held_out).spread(metric)

    def values(self, metric: str) -> list[float]:
        """Return a metric for each seed."""
        return self.spread(metric).values

    def against(self, reference: "Entry | None", metric: str) -> Difference | None:
        """Return the difference to the reference with the same seeds; None for itself, or where that lacks a seed.

        An ensemble of runs is set against the mean of the reference over the seeds of its members.
        """
        found = None if reference is None or self is reference else compare(self, reference, metric)
        return found.difference if found is not None and set(found.seeds) == self.seeds else None

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


def headlines() -> list[metrics.Metric]:
    """Return the metrics of a short table, also those that were added to the package's own."""
    return [each for each in metrics.of_task("classification") if each.headline]


def names() -> list[str]:
    """Return the names of these."""
    return [each.name for each in headlines()]


def shown(values: Spread, metric: str) -> str:
    """Return mean ± standard deviation in the metric's unit."""
    found = metrics.metric(metric)
    return statistics.shown(values, found.scale, found.digits)


def in_columns(name: str, values: Spread | Difference | None, *parts: str) -> dict[str, float | None]:
    """Return some parts of a number over the seeds as columns of a CSV file, empty where it is not known."""
    return {f"{name}_{part}": getattr(values, part, None) for part in parts}


def training_steps(recipe: Recipe, images: int) -> float:
    """Return the network-steps of a training run: epochs x batches in an epoch x networks in a step."""
    return recipe.epochs * -(-images // recipe.batch) * recipe.training_cost


def entries_of(
    group: Group, splits: Sequence[str], images: int, together: Iterable[Measured] = (), scaled: bool = False
) -> list[Entry]:
    """Return the ways in which the runs of one recipe, trained on so many images, answer, the method's own first.

    Then come these after temperature scaling, where that is asked for and held-out images have fitted a temperature,
    and ensembles of several runs of the group among those that were measured together.
    """
    for split in splits:
        answers.check_measured(group, split, group.runs[0].record.answers)
    recipe, measured = recipe_of(group), list(together)

    def ways(split: str) -> list[Answer]:
        after = answers.scaled(group, split) if scaled else []
        of_runs = answers.together(group, measured, split)
        return [*answers.own(group, split), *after, *of_runs]

    held_out = {each.name: each.by_seeds for split in splits if split != "test" for each in ways(split)}
    return [
        Entry(
            **vars(each),
            steps=each.runs * training_steps(recipe, images),
            held_out=held_out.get(each.name, {}),  # a temperature is fitted there, and not measured
            stopping=[_stopping(run) for run in group.runs if recipe.method == "early-stopping" and each.rows],
        )
        for each in ways("test")
    ]


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
