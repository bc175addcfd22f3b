"""Exhibits of lines on corrupted images: accuracy along them, and how much is lost."""

from typing import TYPE_CHECKING, Any

from subspaces.evaluation import conditions
from subspaces.evaluation.metrics import METRICS
from subspaces.evaluation.shifted_data import Corruptions
from subspaces.experiments.studies.catalogue.claims import BySeed, Claim, Quantity
from subspaces.experiments.studies.catalogue.compared import STANDARD, Compared, Panel, Recipes, answer
from subspaces.experiments.studies.catalogue.lines import MATCH
from subspaces.experiments.studies.catalogue.scales import Bench, Role

if TYPE_CHECKING:
    import pandas as pd

LARGE: tuple[Role, ...] = ("large", "large-wide")
LINES = ("line", "layerwise line")
ALONG = ("snow", "contrast")
SEVERITY = 3  # of the bars


class Corrupted(Compared):
    """Lines and standard training on corrupted images."""

    roles = LARGE

    def recipes(self, bench: Bench) -> Recipes:
        lines = {"line": bench.recipe("line"), "layerwise line": bench.recipe("line", layerwise=True)}
        return {STANDARD: bench.recipe(), **lines}

    def corruptions(self, bench: Bench) -> Corruptions:
        """Return which corruptions are measured."""
        return Corruptions(bench.scale.corruptions, [SEVERITY])

    def evaluation(self, bench: Bench) -> dict[str, Any]:
        return {"grid": bench.scale.coarse, "triangle": 0, "corruptions": self.corruptions(bench)}


class CorruptedAlong(Corrupted):
    """How accurate networks along lines are on corrupted images."""

    name = "corrupted-along"
    where = "Figure 9"
    shows = "accuracy along lines on clean images, in snow and at other contrasts"
    picture = "shift-along"

    def corruptions(self, bench: Bench) -> Corruptions:
        return Corruptions(ALONG, bench.scale.severities)

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        matches = [
            Claim(
                f"the midpoint of the {one} matches standard training within {100 * MATCH:g} points",
                answer(one),
                answer(STANDARD),
                margin=MATCH,
            )
            for one in LINES
        ]
        varied = [
            Claim(
                f"networks of the {one} differ more on corrupted images than on clean ones",
                differing(one, True),
                differing(one, False),
            )
            for one in LINES
        ]
        return [*matches, *varied]


class CorruptedMidpoint(Corrupted):
    """How much less of its accuracy a line's midpoint loses on corrupted images."""

    name = "corrupted-midpoint"
    where = "Figure 19"
    shows = "relative change of accuracy on corrupted images, of the midpoint of a line beside standard training"
    picture = "shift"

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        standard = change(STANDARD)
        less = [
            Claim(
                f"the midpoint of the {one} loses less than standard training, in the mean",
                change(one),
                standard,
                "change",
            )
            for one in LINES
        ]
        often = [
            Claim(
                f"the midpoint of the {one} loses less on more than half of the corruptions", winning(one), 0.5, "share"
            )
            for one in LINES
        ]
        return [*less, *often]


class CorruptedBest(Corrupted):
    """How much less of its accuracy a line's best network loses on corrupted images."""

    name = "corrupted-best"
    where = "Figure 20"
    shows = "relative change of accuracy on corrupted images, of the best network of a line beside standard training"
    picture = "shift"

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        return [
            Claim(
                f"the best network of the {one} loses less than standard training, in the mean over corruptions",
                best_change(one),
                change(STANDARD),
                "change",
            )
            for one in LINES
        ]


# Quantities on corrupted images


def accuracies(found: Panel, label: str) -> "pd.DataFrame":
    """Return accuracies by seed and alpha, which is 1/2 of a single network: a column for each corruption, and `test`.

    Several severities of a corruption are averaged.
    """
    frame = found.group(label).frame
    points = frame[(frame["kind"] == "point") & frame["role"].isin(("along", "midpoint"))]
    points = points[(points["data"] == "test") | (points["severity"] > 0)]
    points = points.assign(seed=points["seeds"].str[0], alpha=points["alpha"].fillna(0.5))
    return points.groupby(["seed", "alpha", "data"])["accuracy"].mean().unstack("data")


def changes(found: Panel, label: str) -> "pd.DataFrame":
    """Return the relative changes (b − a)/a of the midpoint by seed, with a column for each corruption."""
    middle = accuracies(found, label).xs(0.5, level="alpha")
    clean = middle.pop("test")
    return middle.sub(clean, axis=0).div(clean, axis=0)


def change(label: str) -> Quantity[Panel]:
    """Return the relative change of the midpoint, in the mean over corruptions."""
    return Quantity(f"{label}: change", lambda found: changes(found, label).mean(axis=1).to_dict())


def best_change(label: str) -> Quantity[Panel]:
    """Return the same at the point with the best relative change on each corruption, as the picture shows it."""

    def of(found: Panel) -> BySeed:
        group = found.group(label)
        best = conditions.best_along(group, conditions.conditions([group]), METRICS["accuracy"])
        return {seeds[0]: value for seeds, value in best.items()}

    return Quantity(f"{label}: change at its best", of)


def winning(label: str) -> Quantity[Panel]:
    """Return on which share of corruptions the midpoint loses less than standard training with the same seed."""

    def of(found: Panel) -> BySeed:
        ours, theirs = changes(found, label), changes(found, STANDARD)
        both = ours.index.intersection(theirs.index)
        won: BySeed = (ours.loc[both] > theirs.loc[both]).mean(axis=1).to_dict()
        return won

    return Quantity(f"{label}: share of corruptions", of)


def differing(label: str, corrupted: bool) -> Quantity[Panel]:
    """Return how far apart the best and the worst point of a line are, relative to their mean."""

    def of(found: Panel) -> BySeed:
        every = accuracies(found, label)
        columns = every.drop(columns="test") if corrupted else every[["test"]]
        runs = columns.groupby(level="seed")
        apart: BySeed = ((runs.max() - runs.min()) / runs.mean()).mean(axis=1).to_dict()
        return apart

    return Quantity(f"{label}: range on {'corrupted' if corrupted else 'clean'} images", of)
