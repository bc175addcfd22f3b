import dataclasses

import numpy as np
import pytest
import torch
from helpers import SHAPES, quick, shapes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from subspaces import Bezier, Line, Shape, Simplex
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
def test_coefficients_sum_to_one_off_the_domain_too(bends, alpha):
    alpha = torch.tensor(alpha, dtype=torch.float64)
    for shape in (Line(), Bezier(bends)):
        c = shape.coefficients(alpha)
        assert c.sum().item() == pytest.approx(1, abs=1e-12 * c.abs().sum().item())


def test_line_is_the_papers():
    assert Line().coefficients(torch.tensor(0.25)).tolist() == [0.75, 0.25]


@quick
@given(bends, st.floats(0, 1))
def test_bezier_has_bernstein_coefficients(bends, alpha):
    c = Bezier(bends).coefficients(torch.tensor(alpha, dtype=torch.float64))
    degree = bends + 1
    np.testing.assert_allclose(c, stats.binom.pmf(range(degree + 1), degree, alpha), rtol=1e-9, atol=1e-12)


@quick
@given(bends, numbers)
def test_bezier_is_repeated_interpolation(bends, alpha):
    points = torch.randn(bends + 2, 4, dtype=torch.float64)
    c = Bezier(bends).coefficients(torch.tensor(alpha, dtype=torch.float64))
    torch.testing.assert_close(c @ points, de_casteljau(points, alpha), rtol=1e-9, atol=1e-6)


@quick
@given(bends, st.floats(0, 1))
def test_bezier_is_symmetric(bends, alpha):
    alpha = torch.tensor(alpha, dtype=torch.float64)
    c, reverse = Bezier(bends).coefficients(alpha), Bezier(bends).coefficients(1 - alpha)
    torch.testing.assert_close(c, reverse.flip(-1))


@quick
@given(bends, st.floats(0, 1))
def test_raising_the_degree_of_a_curve_keeps_it(bends, alpha):
    alpha = torch.tensor(alpha, dtype=torch.float64)
    points = torch.randn(bends + 2, 4, dtype=torch.float64)
    degree = bends + 1
    zero = torch.zeros(1, 4, dtype=torch.float64)
    share = torch.arange(degree + 2, dtype=torch.float64)[:, None] / (degree + 1)
    raised = share * torch.cat([zero, points]) + (1 - share) * torch.cat([points, zero])
    torch.testing.assert_close(
        Bezier(bends).coefficients(alpha) @ points, Bezier(bends + 1).coefficients(alpha) @ raised
    )


@pytest.mark.parametrize("shape", [Line(), Bezier(1), Bezier(2), Bezier(10)], ids=str)
def test_a_curve_ends_exactly_in_its_first_and_last_vertex(shape):
    identity = torch.eye(shape.vertices)
    assert torch.equal(shape.coefficients(torch.tensor(0.0)), identity[0])
    assert torch.equal(shape.coefficients(torch.tensor(1.0)), identity[-1])


@pytest.mark.parametrize("m", [2, 3, 6])
def test_corners_of_a_simplex_are_its_vertices(m):
    assert torch.equal(Simplex(m).coefficients(torch.eye(m)), torch.eye(m))


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


def test_simplex_sample_is_a_point_for_the_most_extreme_numbers():
    shape = Simplex(3)
    assert shape.sample((), torch.zeros).tolist() == pytest.approx([1 / 3] * 3)
    largest = shape.sample((), lambda size: torch.tensor([1 - 2**-24, 0, 0]))
    assert shape.valid(largest)
    assert shape.inside(largest)
    assert largest[0] == pytest.approx(1)


def test_separation():
    a, b = torch.tensor([0.1, 0.9]), torch.tensor([0.4, 0.2])
    torch.testing.assert_close(Line().separation(a, b), torch.tensor([0.3, 0.7]))
    corners = torch.eye(4)
    half_l1 = [[float(sum(abs(x - y) for x, y in zip(p, q, strict=True)) / 2) for q in corners] for p in corners]
    assert Simplex(4).separation(corners[:, None], corners[None]).tolist() == half_l1
    assert Simplex(4).separation(corners[0], corners[1]) == 1
    edge = torch.tensor([[1 - 0.3, 0.3], [1 - 0.8, 0.8]])  # a line is the simplex of two vertices
    assert Simplex(2).separation(*edge).item() == pytest.approx(0.5)


@pytest.mark.parametrize("m", [1, 0, -3, 2.0, "3", None])
def test_simplex_needs_two_vertices(m):
    with pytest.raises(ValueError, match=rf"m={m!r}: expected .*at least 2 .*, the number of vertices"):
        Simplex(m)


@pytest.mark.parametrize("bends", [0, -1, 1.5, "1", None])
def test_bezier_needs_a_bend(bends):
    with pytest.raises(ValueError, match=rf"bends={bends!r}: expected .*at least 1 .*; without a bend use Line\(\)"):
        Bezier(bends)


def test_shapes_are_values():
    assert Bezier(2) == Bezier(bends=2) != Bezier(3)
    assert str(Simplex(4)) == "Simplex(m=4)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        Simplex(4).m = 5
    with pytest.raises(TypeError, match="abstract"):
        Shape()


@pytest.mark.parametrize("sign", [1, -1])
def test_points_of_a_simplex_may_be_off_by_rounding_and_no_more(sign):
    """Thirds with five digits are a point, with three they are none."""
    for error, expected in ((0.0, True), (9e-5, True), (1.2e-4, False), (1e-3, False)):
        alpha = torch.tensor([0.2, 0.3, 0.5 + sign * error], dtype=torch.float64)
        assert bool(Simplex(3).valid(alpha)) is expected
    assert Simplex(3).valid(torch.tensor([0.33333, 0.33333, 0.33333]))
    assert not Simplex(3).valid(torch.tensor([0.333, 0.333, 0.333]))
