"""What the paper claims, as a check: one quantity is larger than another, judged over the seeds by one rule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Generic, Literal, TypeVar

from subspaces.errors import ArgumentError
from subspaces.evaluation.curves import described
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.statistics import (
    CONFIDENCE,
    Difference,
    Spread,
    paired,
    shown,
    shown_difference,
    signed,
    spread,
)
from subspaces.text import listed

Verdict = Literal["holds", "does not", "too noisy to say"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not", "too noisy to say")
BySeed = dict[int, float]
P = TypeVar("P")
"""What was measured on one bench, of which quantities are taken."""

RULE = (
    f"A claim is judged by its difference, paired by the seed, with the {CONFIDENCE:.0%} confidence interval of the "
    "mean (Student's t): it holds if the whole interval is above 0, does not if the whole is below 0, and else, or "
    "with one seed, it is too noisy to say. The difference is what is above − factor × what is below + margin, with "
    "the factor and the margin that the claim names, if any."
)
MANY = "Each claim stands for itself: expect one interval in twenty to miss the true difference."
ROUNDING = 1e-9  # of a difference that is 0
CHANGE = Metric("change", "relative change of accuracy", "(b - a) / a on corrupted images", False, True)
SHARE = Metric("share", "share of corruptions", "of all that were measured", False, True)


@dataclass(frozen=True)
class Quantity(Generic[P]):
    """A number for each seed, and what it is called."""

    words: str
    of: Callable[[P], Mapping[int, float]]


def mean(words: str, some: Sequence[Quantity[P]]) -> Quantity[P]:
    """Return the mean of several quantities, for the seeds that all have."""

    def of(found: P) -> BySeed:
        every = [one.of(found) for one in some]
        seeds = [seed for seed in every[0] if all(seed in each for each in every)]
        return {seed: fmean(each[seed] for each in every) for seed in seeds}

    return Quantity(words, of)


@dataclass(frozen=True)
class Claim(Generic[P]):
    """That one quantity is above another: above > factor · below − margin.

    Args:
        sentence: the claim in words.
        above, below: the two quantities, of which one may be a number that no seed changes.
        metric: the unit in which both are shown.
        factor: how many times the second the first is above.
        margin: how far the first may be below and still match, in the unit of the quantities.
    """

    sentence: str
    above: Quantity[P] | float
    below: Quantity[P] | float
    metric: str = "accuracy"
    factor: float = 1.0
    margin: float = 0.0

    @property
    def unit(self) -> Metric:
        """How both quantities are shown."""
        return {each.name: each for each in (CHANGE, SHARE)}.get(self.metric) or described(self.metric)

    def judge(self, found: P) -> "Judgement":
        """Judge it by d = above − factor · below + margin over the seeds that both have."""
        sides = [side if isinstance(side, float) else side.of(found) for side in (self.above, self.below)]
        known = [side for side in sides if not isinstance(side, float)]
        seeds = [seed for seed in known[0] if all(seed in side for side in known)]
        if not seeds:
            raise ArgumentError(f"{self.sentence}: {self.formula} has no seed with both sides; expected one or more")
        first, second = ([side if isinstance(side, float) else side[seed] for seed in seeds] for side in sides)
        difference = paired([value + self.margin for value in first], [self.factor * value for value in second])
        return Judgement(self, seeds, spread(first), spread(second), difference, _verdict(difference))

    @property
    def formula(self) -> str:
        """The two quantities as they are compared."""
        factor = "" if self.factor == 1 else f"{self.factor:.2g} × "
        unit = self.unit
        margin = f" {signed(-unit.scale * self.margin, 2)}" if self.margin else ""
        return f"{_words(self.above)} > {factor}{_words(self.below)}{margin}"


def _words(side: Quantity[Any] | float) -> str:
    return f"{side:g}" if isinstance(side, float) else side.words


@dataclass(frozen=True)
class Judgement:
    """A claim with its numbers, and whether it holds."""

    claim: Claim[Any]
    seeds: list[int]
    above: Spread
    below: Spread
    difference: Difference
    verdict: Verdict

    def cells(self) -> list[str]:
        """Return the row of a table: claim, verdict, both quantities, and the difference with its interval."""
        unit = self.claim.unit
        scale, digits = unit.scale, 2 if unit.percent else 3
        numbers = (shown(self.above, scale, digits), shown(self.below, scale, digits))
        return [self.claim.sentence, self.verdict, *numbers, shown_difference(self.difference, scale, digits)]

    def as_row(self) -> dict[str, Any]:
        """Return the row of a CSV file."""
        return {
            "claim": self.claim.sentence,
            "verdict": self.verdict,
            "above": _words(self.claim.above),
            "below": _words(self.claim.below),
            "metric": self.claim.metric,
            "factor": self.claim.factor,
            "margin": self.claim.margin,
            "n": len(self.seeds),
            "above_mean": self.above.mean,
            "above_std": self.above.std,
            "below_mean": self.below.mean,
            "below_std": self.below.std,
            "difference_mean": self.difference.mean,
            "difference_low": self.difference.low,
            "difference_high": self.difference.high,
        }

    def summary(self) -> dict[str, Any]:
        """Return everything, for a JSON file."""
        claim = self.claim
        return {
            "claim": claim.sentence,
            "formula": claim.formula,
            "verdict": self.verdict,
            "metric": claim.metric,
            "factor": claim.factor,
            "margin": claim.margin,
            "seeds": self.seeds,
            "above": {"what": _words(claim.above), **asdict(self.above)},
            "below": {"what": _words(claim.below), **asdict(self.below)},
            "difference": asdict(self.difference),
        }


def _verdict(difference: Difference) -> Verdict:
    """Return what the interval says; one that is no number says nothing."""
    if difference.low is not None and difference.low > ROUNDING:
        return "holds"
    return "does not" if difference.high is not None and difference.high < -ROUNDING else "too noisy to say"


def counted(verdicts: Sequence[Verdict]) -> str:
    """Return how many claims have each verdict, in words."""
    several = {"holds": "hold", "does not": "do not", "too noisy to say": "are too noisy to say"}
    one = {"too noisy to say": "is too noisy to say"}
    found = {each: verdicts.count(each) for each in VERDICTS if each in verdicts}
    return listed(f"{n} {several[each] if n > 1 else one.get(each, each)}" for each, n in found.items())


HEADS = ("claim", "verdict", "what is above", "what is below", "difference")
