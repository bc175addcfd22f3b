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
from subspaces.evaluation.classification import POINTS, each_top
from subspaces.evaluation.classification import risk_coverage as curve_of
from subspaces.evaluation.rows import RiskCoverage

LEVELS = [0.5, 0.6, 0.75, 0.9, 1.0]


def each(probabilities: Tensor, labels: Tensor) -> Tensor:
    return each_top(certainly(probabilities), labels)


def aurc(probabilities: Tensor, labels: Tensor) -> float:
    return METRICS["aurc"](certainly(probabilities), labels)


def risk_coverage(probabilities: Tensor, labels: Tensor) -> RiskCoverage:
    return curve_of(each(probabilities, labels))


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
