"""The rows of every table: how trained methods answer on each split, over the seeds, and what that costs."""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from subspaces.evaluation import comparing, statistics
from subspaces.evaluation.comparing import Group, GroupAnswer, each_answer
from subspaces.evaluation.metrics import Metric, of_task
from subspaces.evaluation.statistics import Difference, Spread
from subspaces.experiments.training.recipe import Recipe
from subspaces.experiments.training.runs import RunError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Entry(GroupAnswer):
    """One answer of a method over the seeds, and what it costs.

    Costs are in network-steps: one batch forward and backward through one network in training, and in networks that
    see each image at test time.
    """

    recipe: Recipe  # with the first seed
    held_out: "pd.DataFrame"  # the same as `frame` on held-out images, empty where there are none
    steps: float

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

    def by_seed(self, metric: str) -> dict[int, float]:
        """Return a metric by the first seed of each row."""
        return {seeds[0]: value for seeds, value in self.by_seeds(metric).items()}

    def against(self, reference: "Entry | None", metric: str) -> Difference | None:
        """Return the difference to the reference, paired by the seed; None for itself, or where that lacks a seed."""
        if reference is None or self is reference:
            return None
        found = statistics.compare(self.frame, reference.frame, metric)
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

    def metrics(self, reference: "Entry | None") -> dict[str, dict[str, Any]]:
        """Return every metric over the seeds with its difference to the reference, for a JSON file."""
        found = {each.name: self.against(reference, each.name) for each in headlines()}
        return {
            name: {**asdict(self.spread(name)), "difference": None if each is None else asdict(each)}
            for name, each in found.items()
        }


def headlines() -> list[Metric]:
    """Return the metrics of a short table, also those that were added to the package's own."""
    return [each for each in of_task("classification") if each.headline]


def entries_of(group: Group, recipe: Recipe, splits: Sequence[str], images: int, scaled: bool = False) -> list[Entry]:
    """Return the answers of the runs of a recipe that were trained on so many images, the method's own first.

    Then come these after temperature scaling, where that is asked for and held-out images have fitted a temperature,
    and the group's ensembles of runs.
    """
    for one in group.evaluations:
        for split, wanted in itertools.product(splits, group.evaluations[0].answers):
            if one.answer(wanted.name, split) is None:
                folder = comparing.place(one)
                raise RunError(f"{folder} has no {wanted.words} on {split!r}: run `subspaces evaluate {folder}`")
    steps = recipe.epochs * -(-images // recipe.batch) * recipe.training_cost
    others = [comparing.answers(group, split, scaled=scaled, together=True) for split in splits if split != "test"]
    found = []
    for each in each_answer(group, scaled=scaled, together=True):
        held_out = others[0][others[0]["words"] == each.words] if others else each.frame.iloc[:0]
        found.append(Entry(**vars(each), recipe=recipe, held_out=held_out, steps=each.runs * steps))
    return found
