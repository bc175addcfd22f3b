"""What the paper claims, as a check: one quantity is larger than another, judged over the seeds by one rule."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from subspaces.errors import ArgumentError
from subspaces.evaluation.curves import described
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.statistics import CONFIDENCE, Difference, Spread, paired, shown, shown_difference, spread
from subspaces.text import listed

Verdict = Literal["holds", "does not", "too noisy to say"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not", "too noisy to say")
HEADS = ("claim", "verdict", "what is above", "what is below", "difference")
RULE = (
    f"A claim is judged by its difference, paired by the seed, with the {CONFIDENCE:.0%} confidence interval of the "
    "mean (Student's t): it holds if the whole interval is above 0, does not if the whole is below 0, and else, or "
    "with one seed, it is too noisy to say. The difference is what is above − factor × what is below + margin, with "
    "the factor and the margin that the claim names, if any."
)
MANY = "Each claim stands for itself: expect one interval in twenty to miss the true difference."
ROUNDING = 1e-9  # of a difference that is 0
UNITS = {
    "change": Metric("change", "relative change of accuracy", "(b - a) / a on corrupted images", False, True),
    "share": Metric("share", "share of corruptions", "of all that were measured", False, True),
}
NUMBER = re.compile(r"[\d.]+")
READ = re.compile(r"(.+?) > (?:([\d.]+) × )?(.+?)(?: − ([\d.]+))?(?: in (\w+))?")
Values = Callable[[str, str], Mapping[int, float]]
"""What an expression is for each seed, in a metric."""


@dataclass(frozen=True)
class Claim:
    """That one quantity is above another: above > factor × below − margin.

    Args:
        sentence: the claim in words.
        formula: the same as `ABOVE > BELOW`, `ABOVE > FACTOR × BELOW` or `ABOVE > BELOW − MARGIN`, with `in METRIC` at
            the end where that is not accuracy. Both sides are expressions, see `Measured.value`, or numbers.

    Example:
        >>> from subspaces.experiments.paper.claims import Claim
        >>> Claim("the line matches standard training within 0.2 points", "line > standard − 0.002")
    """

    sentence: str
    formula: str

    @cached_property
    def parts(self) -> tuple[str, float, str, float, str]:
        """What is above, the factor, what is below, the margin and the metric."""
        if (match := READ.fullmatch(self.formula)) is None:
            raise ArgumentError(f"{self.formula!r}: expected a claim such as 'line > standard − 0.002 in accuracy'")
        above, factor, below, margin, metric = match.groups()
        own = {side.rpartition(": ")[2].partition(" ")[0] for side in (above, below)} & {*UNITS, "l2", "cos2", "tv"}
        return above, float(factor or 1), below, float(margin or 0), metric or next(iter(own), "accuracy")

    def judge(self, values: Values) -> "Judgement":
        """Judge it by d = above − factor · below + margin over the seeds that both have."""
        above, factor, below, margin, metric = self.parts
        sides = [float(side) if NUMBER.fullmatch(side) else values(side, metric) for side in (above, below)]
        known = [side for side in sides if not isinstance(side, float)]
        seeds = [seed for seed in known[0] if all(seed in side for side in known)]
        if not seeds:
            raise ArgumentError(f"{self.sentence}: {self.formula} has no seed with both sides; expected one or more")
        first, second = ([side if isinstance(side, float) else side[seed] for seed in seeds] for side in sides)
        difference = paired([value + margin for value in first], [factor * value for value in second])
        return Judgement(self, seeds, spread(first), spread(second), difference, _verdict(difference))

    @property
    def unit(self) -> Metric:
        """How both quantities are shown."""
        return UNITS.get(self.parts[-1]) or described(self.parts[-1])


@dataclass(frozen=True)
class Judgement:
    """A claim with its numbers, and whether it holds."""

    claim: Claim
    seeds: list[int]
    above: Spread
    below: Spread
    difference: Difference
    verdict: Verdict

    def cells(self) -> list[str]:
        """Return the row of a table: claim, verdict, both quantities, and the difference with its interval."""
        scale, digits = self.claim.unit.scale, 2 if self.claim.unit.percent else 3
        numbers = (shown(self.above, scale, digits), shown(self.below, scale, digits))
        return [self.claim.sentence, self.verdict, *numbers, shown_difference(self.difference, scale, digits)]

    def summary(self) -> dict[str, Any]:
        """Return everything, for a JSON file."""
        above, factor, below, margin, metric = self.claim.parts
        return {
            "claim": self.claim.sentence,
            "formula": self.claim.formula,
            "verdict": self.verdict,
            "metric": metric,
            "factor": factor,
            "margin": margin,
            "n": len(self.seeds),
            "seeds": self.seeds,
            "above": {"what": above, **asdict(self.above)},
            "below": {"what": below, **asdict(self.below)},
            "difference": asdict(self.difference),
        }


def _verdict(difference: Difference) -> Verdict:
    """Return what the interval says; one that is no number says nothing."""
    if difference.low is not None and difference.low > ROUNDING:
        return "holds"
    return "does not" if difference.high is not None and difference.high < -ROUNDING else "too noisy to say"


def counted(verdicts: Sequence[Verdict]) -> str:
    """Return how many claims have each verdict, in words."""
    words = ("hold", "do not", "are too noisy to say")
    return listed(f"{verdicts.count(each)} {word}" for each, word in zip(VERDICTS, words, strict=True))
