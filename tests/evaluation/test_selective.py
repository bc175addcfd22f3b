"""Selective prediction against its definitions, by brute force."""

import itertools

import numpy as np
import pytest
import torch
from evaluation_cases import certainly
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from subspaces.evaluation import METRICS
from subspaces.evaluation.classification import each_top
from subspaces.evaluation.rows import RiskCoverage
from subspaces.evaluation.selective import POINTS, answered, threshold
from subspaces.evaluation.selective import risk_coverage as curve_of

LEVELS = [0.5, 0.6, 0.75, 0.9, 1.0]


def each(probabilities: Tensor, labels: Tensor) -> Tensor:
    return each_top(certainly(probabilities), labels)


def aurc(probabilities: Tensor, labels: Tensor) -> float:
    return METRICS["aurc"](certainly(probabilities), labels)


def risk_coverage(probabilities: Tensor, labels: Tensor) -> RiskCoverage:
    return curve_of(each(probabilities, labels))


def threshold_for_risk(probabilities: Tensor, labels: Tensor, risk: float) -> float | None:
    return threshold(each(probabilities, labels), risk)


def selected(probabilities: Tensor, labels: Tensor, threshold: float) -> dict[str, float]:
    return answered(each(probabilities, labels), threshold)


def of(confidence: list[float], correct: list[bool]) -> tuple[Tensor, Tensor]:
    """Return predictions of two classes with these confidences that are right where `correct` says so."""
    first = torch.tensor(confidence, dtype=torch.float64)
    return torch.stack([first, 1 - first], 1), (~torch.tensor(correct)).long()


def cases(largest: int) -> st.SearchStrategy[list[tuple[float, bool]]]:
    return st.lists(st.tuples(st.sampled_from(LEVELS), st.booleans()), min_size=1, max_size=largest)


def split(case: list[tuple[float, bool]]) -> tuple[list[float], list[bool]]:
    confidence, correct = zip(*case, strict=True)
    return list(confidence), list(correct)


def all_orders(case: list[tuple[float, bool]]) -> np.ndarray:
    """Return the risks at k = 1 … n, averaged over all orders that have the more confident example first."""
    curves = []
    for order in itertools.permutations(case):
        if all(a[0] >= b[0] for a, b in itertools.pairwise(order)):
            wrong = np.cumsum([not right for _, right in order])
            curves.append(wrong / np.arange(1, len(order) + 1))
    return np.mean(curves, 0)


@given(cases(6))
@settings(max_examples=60, deadline=None)
def test_risks_are_the_mean_over_all_orders_of_equals(case: list[tuple[float, bool]]) -> None:
    expected = all_orders(case)
    probabilities, labels = of(*split(case))
    assert aurc(probabilities, labels) == pytest.approx(expected.mean(), abs=1e-12)
    curve = risk_coverage(probabilities, labels)
    assert curve.coverage == pytest.approx([k / len(case) for k in range(1, len(case) + 1)])
    assert curve.risk == pytest.approx(expected.tolist(), abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 50, 51, 1000, 10_007])
def test_coverages_are_spread_from_one_example_to_all(n: int) -> None:
    generator = torch.Generator().manual_seed(n)
    probabilities = torch.randn(n, 3, generator=generator).softmax(-1)
    labels = torch.randint(3, (n,), generator=generator)
    curve = risk_coverage(probabilities, labels)
    assert len(curve.coverage) == len(curve.risk)
    assert len(curve.coverage) == (min(n, 50) if n <= 51 else POINTS)  # 51: the first two coincide
    assert curve.coverage[0] == 1 / n
    assert curve.coverage[-1] == 1.0
    assert max(np.diff(curve.coverage), default=0) <= 1 / (POINTS - 1) + 1 / n
    assert curve.risk[-1] == pytest.approx(float((probabilities.argmax(1) != labels).double().mean()))


@given(cases(25), st.sampled_from([0.0, 0.1, 0.2, 1 / 3, 0.5, 1.0]))
@settings(max_examples=100, deadline=None)
def test_the_threshold_is_the_lowest_that_keeps_the_risk(case: list[tuple[float, bool]], risk: float) -> None:
    allowed = []
    for level in sorted({confidence for confidence, _ in case}):
        kept = [right for confidence, right in case if confidence >= level]
        if sum(not right for right in kept) / len(kept) <= risk:
            allowed.append(level)
    probabilities, labels = of(*split(case))
    chosen = threshold_for_risk(probabilities, labels, risk)
    assert chosen == (allowed[0] if allowed else None)
    if chosen is not None:
        found = selected(probabilities, labels, chosen)
        assert found["risk"] <= risk + 1e-12
        assert found["coverage"] == sum(confidence >= chosen for confidence, _ in case) / len(case)


def test_a_threshold_of_one_split_selects_on_another() -> None:
    chosen = threshold_for_risk(*of([0.95, 0.9, 0.7, 0.6], [True, True, False, True]), 0.0)
    assert chosen == 0.9
    probabilities, labels = of([0.92, 0.91, 0.8, 0.99], [True, False, False, True])
    assert selected(probabilities.float(), labels, chosen) == {"coverage": 0.75, "risk": pytest.approx(1 / 3)}


def test_nothing_selected_is_no_error() -> None:
    assert selected(*of([0.9], [False]), 0.95) == {"coverage": 0.0, "risk": 0.0}
