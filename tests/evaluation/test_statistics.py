"""Means, standard deviations and intervals against scipy and by hand."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from subspaces.evaluation.statistics import deviation, errors, paired, shown, shown_difference, signed, spread

numbers = st.floats(-1, 1)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=8))
def test_paired_differences_are_those_of_scipy(pairs: list[tuple[float, float]]) -> None:
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    found = paired(list(first), list(second))
    assert found.values == pytest.approx(list(first - second))
    assert found.mean == pytest.approx(np.mean(first - second))
    assert found.low is not None
    assert found.high is not None
    if np.std(first - second) < 1e-9:
        assert found.high - found.low < 1e-6
        return
    interval = scipy.stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("n", "t"), [(2, 12.706), (3, 4.303), (5, 2.776), (31, 2.042)])
def test_standard_errors_are_those_of_the_printed_tables(n: int, t: float) -> None:
    assert errors(n) == pytest.approx(t, abs=5e-4)


def test_errors() -> None:
    with pytest.raises(ValueError, match="no values"):
        spread([])
    with pytest.raises(ValueError, match="2 and 1 values: expected pairs"):
        paired([1, 2], [1])


def test_the_deviation_of_curves_is_that_of_their_points() -> None:
    curves = [[1.0, 5.0], [2.0, 5.0], [4.0, 8.0]]
    assert deviation(curves) == pytest.approx([spread([1, 2, 4]).std, spread([5, 5, 8]).std])
    assert deviation(curves[:1]).tolist() == [0.0, 0.0]


def test_as_text() -> None:
    assert shown(spread([0.91, 0.93]), 100) == "92.00 ± 1.41"
    assert shown(spread([0.91]), digits=4) == "0.9100"
    assert shown_difference(paired([0.93, 0.95], [0.92, 0.91]), 100, 1) == "+2.5 [−16.6, +21.6]"
    assert shown_difference(paired([0.9], [0.92]), 100, 1) == "−2.0"
    assert [signed(value, 2) for value in (0.004, -0.004, 0.006, -0.006)] == ["0.00", "0.00", "+0.01", "−0.01"]
