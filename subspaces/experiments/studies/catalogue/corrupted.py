"""Exhibits of lines on corrupted images: accuracy along them, and how much is lost."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from subspaces.evaluation.changes import relative_change
from subspaces.evaluation.record import Row
from subspaces.evaluation.shifted_data import Corruptions
from subspaces.experiments.studies.catalogue.claims import BySeed, Claim, Quantity
from subspaces.experiments.studies.catalogue.compared import (
    STANDARD,
    Compared,
    Panel,
    Recipes,
    answer,
)
from subspaces.experiments.studies.catalogue.lines import MATCH
from subspaces.experiments.studies.catalogue.scales import Bench, Role
from subspaces.reports import shifts
from subspaces.reports.reading import Reading

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
                change(one, best=True),
                change(STANDARD),
                "change",
            )
            for one in LINES
        ]


# Quantities on corrupted images

Shifted = list[tuple[Mapping[float, Row], Mapping[float, Row]]]
"""Points of a run on clean images, and on each kind of corrupted ones."""


def _shifted(found: Panel, one: str) -> dict[int, Shifted]:
    """Return what was measured of each run of a method on the corruptions of the exhibit, by the seed."""
    group = found.group(one)
    wanted = shifts.conditions([run.record for each in found.comparison.groups for run in each.runs])
    several = [shifts.on(group, [each]).runs for each in wanted]
    return {run.seed: [(points(run), points(each[place])) for each in several] for place, run in enumerate(group.runs)}


def points(run: Reading) -> Mapping[float, Row]:
    """Return the points of a line; of one network that alone."""
    found = run.points("test")
    return found or {0.5: next(row for row in run.rows("test") if row.role == "midpoint")}


def _over(one: str, words: str, number: Callable[[Shifted], float]) -> Quantity[Panel]:
    return Quantity(words, lambda found: {seed: number(each) for seed, each in _shifted(found, one).items()})


def _changes(clean: Mapping[float, Row], shifted: Mapping[float, Row]) -> dict[float, float]:
    return {alpha: relative_change(clean[alpha].accuracy, row.accuracy) or 0.0 for alpha, row in shifted.items()}


def change(one: str, best: bool = False) -> Quantity[Panel]:
    """Return (b − a)/a in the mean over corruptions, at the midpoint or at the point where it is best on each."""

    def number(several: Shifted) -> float:
        every = [_changes(*each) for each in several]
        return fmean(max(each.values()) if best else each[0.5] for each in every)

    return _over(one, f"{one}: change{' at its best' if best else ''}", number)


def winning(one: str) -> Quantity[Panel]:
    """Return on which share of corruptions the midpoint loses less than standard training with the same seed."""

    def of(found: Panel) -> BySeed:
        ours, theirs = ([_at_middle(each) for each in _shifted(found, name).items()] for name in (one, STANDARD))
        known = dict(theirs)
        return {
            seed: fmean(float(a > b) for a, b in zip(changes, known[seed], strict=True))
            for seed, changes in ours
            if seed in known
        }

    return Quantity(f"{one}: share of corruptions", of)


def _at_middle(run: tuple[int, Shifted]) -> tuple[int, Sequence[float]]:
    seed, several = run
    return seed, [_changes(*each)[0.5] for each in several]


def differing(one: str, corrupted: bool) -> Quantity[Panel]:
    """Return how far apart the best and the worst point of a line are, relative to their mean."""

    def number(several: Shifted) -> float:
        rows = [list((shifted if corrupted else clean).values()) for clean, shifted in several]
        return fmean(_range([row.accuracy for row in each]) for each in rows)

    return _over(one, f"{one}: range on {'corrupted' if corrupted else 'clean'} images", number)


def _range(accuracies: Sequence[float]) -> float:
    return (max(accuracies) - min(accuracies)) / fmean(accuracies)
