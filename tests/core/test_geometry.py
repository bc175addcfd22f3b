import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import subspaces as ss
from subspaces.core import geometry
from subspaces.core.geometry import cos2, distances, mix


def rows(*sizes: int, m: int = 2, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    real = torch.complex128 if dtype.is_complex else torch.float64
    return [torch.randn(m, size, dtype=real, generator=generator).to(dtype) for size in sizes]


def vectors(pieces: list[Tensor]) -> list[list[float]]:
    """The joined rows as plain lists, a complex number as two."""
    joined = torch.cat([p.to(torch.complex128) for p in pieces], dim=1)
    if any(p.is_complex() for p in pieces):
        return torch.view_as_real(joined).flatten(1).tolist()
    return joined.real.tolist()


def dot(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def naive_cos2(a: list[float], b: list[float]) -> float:
    return dot(a, b) ** 2 / (dot(a, a) * dot(b, b))


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(7,), (5, 1, 30)])
def test_cos2_is_the_formula(dtype, sizes):
    pieces = rows(*sizes, dtype=dtype)
    value = cos2(pieces)
    assert value.shape == ()
    assert value.dtype == (torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32)
    assert value.item() == pytest.approx(naive_cos2(*vectors(pieces)), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128])
def test_gradient_of_cos2_is_the_formula(dtype):
    # d cos2 / da = 2 <a,b> / (|a|^2 |b|^2) (b - <a,b> / |a|^2 a)
    pieces = [piece.requires_grad_() for piece in rows(6, 4, dtype=dtype)]
    cos2(pieces).backward()
    a, b = (torch.tensor(v, dtype=torch.float64) for v in vectors([p.detach() for p in pieces]))
    first, second = (torch.tensor(v) for v in vectors([p.grad for p in pieces]))
    factor = 2 * (a @ b) / ((a @ a) * (b @ b))
    for found, expected in (
        (first, factor * (b - (a @ b) / (a @ a) * a)),
        (second, factor * (a - (a @ b) / (b @ b) * b)),
    ):
        assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("zero", [[0], [1], [0, 1]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_zero_vector_is_orthogonal_to_all(zero, dtype):
    piece = 100 * rows(5, dtype=dtype)[0]
    piece[zero] = 0
    piece.requires_grad_()
    value = cos2([piece])
    value.backward()
    assert value == 0
    assert piece.grad.isfinite().all()


PAIRS = [(2, None), (4, (3, 1)), (3, (0, 1))]


def chosen_of(pair: tuple[int, int] | None) -> Tensor | None:
    return None if pair is None else torch.tensor(pair)


# Of vertices on a CPU the gradient is in closed form


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [7, 1000, 2**15 + 1])
@pytest.mark.parametrize(("m", "pair"), PAIRS)
def test_closed_form_has_the_value_and_gradient_of_autograd(m, pair, n, dtype):
    (omega,) = rows(n, m=m, dtype=dtype)
    omega[1] += omega[0]
    vertices, plain = nn.Parameter(omega), omega.clone().requires_grad_()
    values = cos2([vertices], pair), cos2([plain], chosen_of(pair))
    assert torch.equal(*values)
    for value in values:
        (0.3 * value).backward()
    assert_close(vertices.grad, plain.grad, rtol=4 * torch.finfo(dtype).eps, atol=1e-9)


@pytest.mark.parametrize(("m", "pair"), PAIRS)
def test_closed_form_has_gradients_of_its_own_and_may_be_used_twice(m, pair):
    (piece,) = rows(6, m=m, dtype=torch.float64)
    found = []
    for omega in (nn.Parameter(piece.clone()), piece.clone().requires_grad_()):
        value = cos2([omega], pair)
        (slope,) = torch.autograd.grad(value, omega, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum() + value, omega)[0])
        twice = cos2([omega], pair) + 2 * cos2([omega], pair).exp()
        found.append(torch.autograd.grad(twice, omega)[0])
    assert_close(found[:2], found[2:])


def family(scale: float = 1.0) -> ss.Subspace:
    made = ss.Subspace(lambda: nn.Linear(8, 4), ss.Line(), seed=0)
    with torch.no_grad():
        made.omega["weights"][0].mul_(scale)
    return made


def test_several_gradients_of_the_penalty_at_once():
    made = family()
    omega = made.omega["weights"]
    (found,) = torch.autograd.grad(made.penalty(), omega, torch.tensor([1.0, 3.0]), is_grads_batched=True)
    (one,) = torch.autograd.grad(made.penalty(), omega)
    assert_close(found, torch.stack([one, 3 * one]))


# Of large matrices the gradient is made late


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("m", "pair"), PAIRS)
def test_late_gradients_are_the_same_to_the_last_bit(m, pair, dtype, monkeypatch):
    def gradients() -> list[Tensor]:
        pieces = [piece.requires_grad_() for piece in rows(1000, 7, m=m, dtype=dtype)]
        value = cos2(pieces, chosen_of(pair))
        return [value, *torch.autograd.grad(value, pieces)]

    expected = gradients()
    monkeypatch.setattr(geometry, "LARGE", 64)
    monkeypatch.setattr(geometry, "PART", 300)  # of which some are whole, and one is not
    assert all(torch.equal(found, one) for found, one in zip(gradients(), expected, strict=True))


@pytest.mark.parametrize(
    ("kind", "function", "otherwise"),
    [(nn.Parameter, geometry._Cos2, ["penalty", "network"]), (Tensor.requires_grad_, geometry._Late, ["network"])],
)
def test_a_late_gradient_comes_after_that_of_the_network(kind, function, otherwise, monkeypatch):
    """Also where the penalty is the last thing that was computed, with which autograd would begin."""
    made: list[str] = []
    backward = function.backward
    monkeypatch.setattr(function, "backward", lambda *given: (made.append("penalty"), backward(*given))[1])
    for large, expected in ((10**9, otherwise), (1, ["network", "penalty"])):
        monkeypatch.setattr(geometry, "LARGE", large)
        made.clear()
        omega = kind(rows(8)[0])
        weights = mix(torch.tensor([0.5, 0.5]), omega)
        weights.register_hook(lambda _: made.append("network"))
        (weights.sin().sum() + cos2([omega])).backward()
        assert made == expected


def test_cos2_is_not_lowered_by_autocast():
    pieces = rows(500)
    with torch.autocast("cpu", torch.bfloat16):
        inside = cos2(pieces)
    assert torch.equal(inside, cos2(pieces))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [2, 4])
def test_distances_are_the_naive_loops(dtype, m):
    pieces = rows(6, 1, 9, m=m, dtype=dtype)
    found = distances(pieces)
    points = vectors(pieces)
    for j, k in itertools.product(range(m), repeat=2):
        assert found.l2[j, k].item() == pytest.approx(math.dist(points[j], points[k]), rel=1e-6)
        assert found.cos2[j, k].item() == pytest.approx(naive_cos2(points[j], points[k]), rel=1e-6)
    assert torch.equal(found.l2, found.l2.T)
    assert torch.equal(found.cos2, found.cos2.T)


@pytest.mark.parametrize("dtype", DTYPES)
def test_mix_is_the_weighted_sum(dtype):
    (omega,) = rows(11, m=3, dtype=dtype)
    exact = torch.complex128 if dtype.is_complex else torch.float64
    for c in (torch.tensor([0.2, 0.3, 0.5]), torch.rand(3, 11)):
        found = mix(c, omega)
        columns = c.double() if c.ndim == 2 else c.double()[:, None]
        expected = sum(columns[i] * omega[i].to(exact) for i in range(3))
        assert found.dtype == dtype
        assert found.shape == (11,)
        assert_close(found, expected.to(dtype))


@pytest.mark.parametrize("scale", [1e-20, 1e-15, 1e-8, 1.0, 1e8, 1e15])
@pytest.mark.parametrize("factor", [1e-30, 1.0, 1e30])
def test_very_short_and_very_long_vertices_give_no_warning(scale, factor):
    made = family(scale)
    with np.errstate(all="raise"):
        (made.penalty() * factor).backward()
    assert made.omega["weights"].grad is not None
