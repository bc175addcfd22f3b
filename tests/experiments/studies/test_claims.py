"""Claims on planted numbers: what holds, what does not, and what is too noisy to say."""

import math
import re

import pytest
from scipy import stats

from subspaces.experiments.studies.catalogue import RULE, Claim, Quantity
from subspaces.experiments.studies.catalogue.claims import BySeed, counted, mean

Planted = dict[str, BySeed]


def taken(name: str) -> Quantity[Planted]:
    """A quantity of planted numbers."""
    return Quantity(name, lambda found: found[name])


OURS, THEIRS = taken("ours"), taken("theirs")


def planted(ours: list[float], theirs: list[float]) -> Planted:
    return {"ours": dict(enumerate(ours)), "theirs": dict(enumerate(theirs))}


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
    assert Claim("ours are above", OURS, THEIRS).judge(planted(ours, theirs)).verdict == verdict


def test_the_interval_is_that_of_scipy() -> None:
    ours, theirs = [0.93, 0.95, 0.91, 0.97], [0.90, 0.91, 0.92, 0.93]
    found = Claim("", OURS, THEIRS, factor=1.02, margin=0.005).judge(planted(ours, theirs))
    values = [a - 1.02 * b + 0.005 for a, b in zip(ours, theirs, strict=True)]
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert found.difference.values == pytest.approx(values)
    assert (found.difference.low, found.difference.high) == pytest.approx((low, high))
    assert (found.above.mean, found.below.std) == pytest.approx((0.94, stats.tstd(theirs)))


@pytest.mark.parametrize(("factor", "verdict"), [(2.0, "holds"), (4.0, "does not")])
def test_a_factor_asks_for_more(factor: float, verdict: str) -> None:
    found = planted([3.0, 3.1, 2.9], [1.0, 1.02, 0.99])
    assert Claim("", OURS, THEIRS, "l2", factor=factor).judge(found).verdict == verdict


@pytest.mark.parametrize(("margin", "verdict"), [(0.0, "does not"), (0.002, "holds")])
def test_a_margin_forgives(margin: float, verdict: str) -> None:
    found = planted([0.900, 0.911, 0.9202], [0.901, 0.912, 0.9210])
    assert Claim("", OURS, THEIRS, margin=margin).judge(found).verdict == verdict


def test_numbers_are_paired_by_the_seed_and_not_by_their_place() -> None:
    found = {"ours": {2: 0.3, 0: 0.1, 1: 0.2, 7: 9.0}, "theirs": {0: 0.09, 1: 0.19, 2: 0.29, 5: 0.0}}
    made = Claim("", OURS, THEIRS).judge(found)
    assert sorted(made.seeds) == [0, 1, 2]
    assert made.difference.values == pytest.approx([0.01] * 3)


def test_no_seed_in_common_is_an_error_that_names_the_claim() -> None:
    found = {"ours": {0: 1.0}, "theirs": {1: 1.0}}
    with pytest.raises(ValueError, match=re.escape("we win: ours > theirs has no seed with both sides")):
        Claim("we win", OURS, THEIRS).judge(found)


def test_a_side_may_be_a_number() -> None:
    found = planted([0.01, 0.02, 0.015], [])
    below = Claim("nearly orthogonal", 0.05, OURS, "cos2").judge(found)
    above = Claim("not orthogonal", OURS, 0.05, "cos2").judge(found)
    assert (below.verdict, above.verdict) == ("holds", "does not")
    assert below.claim.formula == "0.05 > ours"
    same = {"mean": pytest.approx(0.05), "std": pytest.approx(0)}
    assert below.summary()["above"] == {"what": "0.05", "values": [0.05] * 3, **same}


def test_means_are_over_the_seeds_that_all_have() -> None:
    both = mean("both", [OURS, THEIRS])
    assert both.of({"ours": {0: 1.0, 1: 2.0, 3: 9.0}, "theirs": {1: 4.0, 0: 2.0}}) == {0: 1.5, 1: 3.0}


def test_a_judgement_is_shown_in_the_unit_of_its_metric() -> None:
    made = Claim("ours are above", OURS, THEIRS, margin=0.005).judge(planted([0.92, 0.93, 0.91], [0.90, 0.91, 0.89]))
    assert made.cells() == ["ours are above", "holds", "92.00 ± 1.00", "90.00 ± 1.00", "+2.50 [+2.50, +2.50]"]
    assert made.claim.formula == "ours > theirs −0.50"
    far = Claim("", OURS, THEIRS, "l2", factor=3.0).judge(planted([30.0, 31.0], [4.0, 4.0]))
    assert far.cells()[2:4] == ["30.500 ± 0.707", "4.000 ± 0.000"]
    assert far.claim.formula == "ours > 3 × theirs"


def test_verdicts_are_counted_in_words() -> None:
    assert counted(["holds", "too noisy to say", "holds"]) == "2 hold and 1 is too noisy to say"
    assert counted(["does not", "holds", "does not"]) == "1 holds and 2 do not"
    assert "paired by the seed" in RULE
