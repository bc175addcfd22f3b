"""Claims on planted numbers: what holds, what does not, and what is too noisy to say."""

import math
import re

import pytest
from scipy import stats

from subspaces.experiments.paper import Claim, Judgement
from subspaces.experiments.paper.claims import counted
from subspaces.experiments.studies.tables import flat


def judged(formula: str, ours: list[float], theirs: list[float]) -> Judgement:
    """A claim about planted numbers of seeds 0, 1, 2 …"""
    planted = {"ours": dict(enumerate(ours)), "theirs": dict(enumerate(theirs))}
    return Claim("we win", formula).judge(lambda expression, metric: planted[expression.partition(":")[0]])


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ([0.92, 0.93, 0.91], [0.90, 0.91, 0.89], "holds"),
        ([0.90, 0.91, 0.89], [0.92, 0.93, 0.911], "does not"),
        ([0.95, 0.91, 0.93], [0.90, 0.92, 0.91], "too noisy to say"),
        ([0.99], [0.10], "too noisy to say"),  # one seed says nothing
        ([0.9, 0.9], [0.9, 0.9], "too noisy to say"),
        ([0.92, 0.90], [0.90, 0.90], "too noisy to say"),
        ([math.nan, 0.9], [0.8, 0.8], "too noisy to say"),
        ([0.95, 0.80, 0.65], [0.94, 0.7899, 0.6401], "holds"),  # seeds differ far more than pairs do
    ],
)
def test_the_interval_decides(ours: list[float], theirs: list[float], verdict: str) -> None:
    assert judged("ours > theirs", ours, theirs).verdict == verdict


def test_the_interval_is_that_of_scipy() -> None:
    ours, theirs = [0.93, 0.95, 0.91, 0.97], [0.90, 0.91, 0.92, 0.93]
    found = judged("ours > 1.02 × theirs − 0.005", ours, theirs)
    values = [a - 1.02 * b + 0.005 for a, b in zip(ours, theirs, strict=True)]
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert found.difference.values == pytest.approx(values)
    assert (found.difference.low, found.difference.high) == pytest.approx((low, high))
    assert (found.above.mean, found.below.std) == pytest.approx((0.94, stats.tstd(theirs)))


@pytest.mark.parametrize(
    ("formula", "ours", "theirs", "verdict"),
    [
        ("ours: l2 > 2 × theirs: l2", [3.0, 3.1, 2.9], [1.0, 1.02, 0.99], "holds"),
        ("ours: l2 > 4 × theirs: l2", [3.0, 3.1, 2.9], [1.0, 1.02, 0.99], "does not"),
        ("ours > theirs", [0.900, 0.911, 0.9202], [0.901, 0.912, 0.9210], "does not"),
        ("ours > theirs − 0.002", [0.900, 0.911, 0.9202], [0.901, 0.912, 0.9210], "holds"),
        ("0.05 > ours: cos2", [0.01, 0.02, 0.015], [], "holds"),
        ("ours: cos2 > 0.05", [0.01, 0.02, 0.015], [], "does not"),
    ],
)
def test_a_claim_may_have_a_factor_a_margin_and_a_number(
    formula: str, ours: list[float], theirs: list[float], verdict: str
) -> None:
    assert judged(formula, ours, theirs).verdict == verdict


def test_numbers_are_paired_by_the_seed_and_not_by_their_place() -> None:
    found = {"ours": {2: 0.3, 0: 0.1, 1: 0.2, 7: 9.0}, "theirs": {0: 0.09, 1: 0.19, 2: 0.29, 5: 0.0}}
    made = Claim("", "ours > theirs").judge(lambda expression, _: found[expression])
    assert sorted(made.seeds) == [0, 1, 2]
    assert made.difference.values == pytest.approx([0.01] * 3)
    found = {"ours": {0: 1.0}, "theirs": {1: 1.0}}
    with pytest.raises(ValueError, match=re.escape("we win: ours > theirs has no seed with both sides")):
        Claim("we win", "ours > theirs").judge(lambda expression, _: found[expression])


def test_a_formula_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'line above standard': expected a claim such as"):
        judged("line above standard", [], [])


def test_a_judgement_is_shown_in_the_unit_of_its_metric() -> None:
    made = judged("ours > theirs − 0.005", [0.92, 0.93, 0.91], [0.90, 0.91, 0.89])
    assert made.cells() == ["we win", "holds", "92.00 ± 1.00", "90.00 ± 1.00", "+2.50 [+2.50, +2.50]"]
    assert made.summary()["below"] == {"what": "theirs", **vars(made.below)}
    row = {"above_mean": 0.92, "above_std": 0.01, "difference_low": 0.025, "margin": 0.005, "n": 3}
    assert flat(made.summary()).items() >= {name: pytest.approx(value) for name, value in row.items()}.items()
    far = judged("ours: l2 > 3 × theirs: l2", [30.0, 31.0], [4.0, 4.0])
    assert far.cells()[2:4] == ["30.500 ± 0.707", "4.000 ± 0.000"]
    assert judged("theirs > ours in ece", [0.1], [0.2]).summary()["metric"] == "ece"


def test_verdicts_are_counted_in_words() -> None:
    assert counted(["holds", "too noisy to say", "holds"]) == "2 hold, 0 do not and 1 are too noisy to say"
