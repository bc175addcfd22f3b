import numpy as np
import pytest
import torch
from helpers import SHAPES, quick, shapes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from subspaces import Bezier, Line, Simplex
from subspaces.core import randomness

numbers = st.floats(-1, 2, allow_nan=False)
bends = st.integers(1, 12)


def seeded(seed: int):
    state = randomness.new_state(seed)
    return lambda size: randomness.uniform(state, size)


def de_casteljau(points: torch.Tensor, alpha: float) -> torch.Tensor:
    """Evaluate a Bezier curve by repeated interpolation instead of polynomials."""
    while len(points) > 1:
        points = (1 - alpha) * points[:-1] + alpha * points[1:]
    return points[0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("size", [(), (4,), (2, 3)])
def test_sizes(shape, size):
    alpha = shape.sample(size)
    assert alpha.shape == (*size, *shape.point)
    assert shape.coefficients(alpha).shape == (*size, shape.vertices)
    assert shape.inside(alpha).shape == shape.valid(alpha).shape == size
    assert shape.inside(alpha).all()
    assert shape.valid(alpha).all()


@quick
@given(shapes, st.integers(0, 2**32))
def test_coefficients_of_a_draw_are_a_convex_combination(shape, seed):
    c = shape.coefficients(shape.sample((20,), seeded(seed)))
    assert (c >= 0).all()
    torch.testing.assert_close(c.sum(-1), torch.ones(20))


@quick
@given(bends, numbers)
def test_bezier_is_repeated_interpolation(bends, alpha):
    points = torch.randn(bends + 2, 4, dtype=torch.float64)
    c = Bezier(bends).coefficients(torch.tensor(alpha, dtype=torch.float64))
    torch.testing.assert_close(c @ points, de_casteljau(points, alpha), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_midpoint_is_in_the_middle(shape):
    middle = shape.midpoint()
    assert middle.shape == shape.point
    assert shape.inside(middle)
    assert shape.valid(middle)
    c = shape.coefficients(middle)
    torch.testing.assert_close(c, c.flip(-1))  # the same from either end
    if isinstance(shape, Simplex):
        assert c.tolist() == [1 / shape.m] * shape.m


@pytest.mark.parametrize("shape", [Line(), Bezier(2)], ids=str)
def test_interval_is_sampled_uniformly(shape):
    assert stats.kstest(shape.sample((20_000,), seeded(1)).numpy(), "uniform").pvalue > 0.01


@pytest.mark.parametrize("m", [2, 3, 4, 6])
def test_simplex_is_sampled_uniformly(m):
    alpha = Simplex(m).sample((20_000,), seeded(m)).double().numpy()
    np.testing.assert_allclose(alpha.sum(1), 1, atol=1e-6)
    assert (alpha > 0).all()
    for column in alpha.T:  # the marginals of the uniform distribution on the simplex
        assert stats.kstest(column, stats.beta(1, m - 1).cdf).pvalue > 0.01
    for i in range(m - 1):  # the split of what is left is uniform, and independent of what is taken
        left = alpha[:, i:].sum(1)
        split = 1 - (1 - alpha[:, i] / left) ** (m - 1 - i)
        assert stats.kstest(split, "uniform").pvalue > 0.01
        if i:
            assert abs(stats.spearmanr(split, alpha[:, 0]).statistic) < 0.03


def test_separation():
    a, b = torch.tensor([0.1, 0.9]), torch.tensor([0.4, 0.2])
    torch.testing.assert_close(Line().separation(a, b), torch.tensor([0.3, 0.7]))
    corners = torch.eye(4)
    half_l1 = [[float(sum(abs(x - y) for x, y in zip(p, q, strict=True)) / 2) for q in corners] for p in corners]
    assert Simplex(4).separation(corners[:, None], corners[None]).tolist() == half_l1
    assert Simplex(4).separation(corners[0], corners[1]) == 1
    edge = torch.tensor([[1 - 0.3, 0.3], [1 - 0.8, 0.8]])  # a line is the simplex of two vertices
    assert Simplex(2).separation(*edge).item() == pytest.approx(0.5)


@pytest.mark.parametrize("bends", [0, -1, 1.5, "1", None])
def test_bezier_needs_a_bend(bends):
    with pytest.raises(ValueError, match=rf"bends={bends!r}: expected .*at least 1 .*; without a bend use Line\(\)"):
        Bezier(bends)


@pytest.mark.parametrize("sign", [1, -1])
def test_points_of_a_simplex_may_be_off_by_rounding_and_no_more(sign):
    """Thirds with five digits are a point, with three they are none."""
    for error, expected in ((0.0, True), (9e-5, True), (1.2e-4, False), (1e-3, False)):
        alpha = torch.tensor([0.2, 0.3, 0.5 + sign * error], dtype=torch.float64)
        assert bool(Simplex(3).valid(alpha)) is expected
    assert Simplex(3).valid(torch.tensor([0.33333, 0.33333, 0.33333]))
    assert not Simplex(3).valid(torch.tensor([0.333, 0.333, 0.333]))
