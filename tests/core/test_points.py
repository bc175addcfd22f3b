import numpy as np
import pytest
import torch
from helpers import Small
from torch import nn

from subspaces import Line, Simplex, Subspace


def family(shape) -> Subspace:
    return Subspace(Small, shape, seed=0)


def by_name(family: Subspace, alpha, **options) -> dict[str, torch.Tensor]:
    """Return the coefficients [m, *shape] that each parameter gets."""
    coefficients = family.coefficients(alpha, **options)
    found = {}
    for group in family.layout.groups:
        c = coefficients[group.name]
        rows = c[:, None].expand(-1, sum(group.sizes)) if c.ndim == 1 else c
        for name in group.unpack(rows[0].contiguous()):
            found[name] = torch.stack([group.unpack(row.contiguous())[name] for row in rows])
    return found


LINE = family(Line())
PLANE = family(Simplex(3))
POINT = [0.2, 0.3, 0.5]


@pytest.mark.parametrize(
    "alpha",
    [0.25, np.float32(0.25), np.array(0.25), torch.tensor(0.25), torch.tensor(0.25, dtype=torch.float16)],
    ids=lambda alpha: type(alpha).__name__,
)
def test_forms_of_one_point_on_a_line(alpha):
    coefficients = LINE.coefficients(alpha)
    assert coefficients.keys() == LINE.omega.keys()
    for c in coefficients.values():
        assert c.tolist() == [0.75, 0.25]


@pytest.mark.parametrize("form", [list, np.array, torch.tensor])
def test_one_point_per_layer(form):
    line = by_name(LINE, form([0.1, 0.2, 0.3]))
    plane = by_name(PLANE, form([[1.0, 0.0, 0.0], POINT, [0.0, 0.0, 1.0]]))
    for index, layer in enumerate(["conv", "norm", "head"]):
        for part in ("weight", "bias"):
            torch.testing.assert_close(line[f"{layer}.{part}"][1].unique().item(), (index + 1) / 10)
    assert plane["conv.weight"][0].eq(1).all()
    torch.testing.assert_close(plane["norm.bias"][:, 0].tolist(), POINT)
    assert plane["head.bias"][2].eq(1).all()


@pytest.mark.parametrize(
    ("members", "alpha", "expected"),
    [
        (LINE, [0.1, 0.2], r"alpha has shape \(2,\): expected \(\) .*Line\(\), or \(3,\) .* 3 layers"),
        (LINE, [[0.1, 0.2, 0.3]], r"shape \(1, 3\): expected \(\)"),
        (PLANE, 0.3, r"alpha has shape \(\): expected \(3,\) .*Simplex\(m=3\), or \(3, 3\)"),
        (PLANE, [0.5, 0.5], r"shape \(2,\): expected \(3,\)"),
        (PLANE, [POINT, POINT], r"shape \(2, 3\): expected \(3,\)"),
    ],
)
def test_wrong_shape(members, alpha, expected):
    for ask in (members.coefficients, members.at):
        with pytest.raises(ValueError, match=expected):
            ask(alpha)


@pytest.mark.parametrize("alpha", [-0.05, 1.05, [0.2, 0.3, 1.5]])
def test_off_the_line_only_on_request(alpha):
    with pytest.raises(ValueError, match=r"not a point of Line\(\): .*\[0, 1\]; pass outside=True"):
        LINE.coefficients(alpha)
    for c in by_name(LINE, alpha, outside=True).values():
        torch.testing.assert_close(c.sum(0), torch.ones_like(c[0]))


def test_off_the_simplex_only_on_request():
    alpha = [-0.1, 0.6, 0.5]
    with pytest.raises(ValueError, match=r"-0.1.*not a point of Simplex\(m=3\): .*pass outside=True"):
        PLANE.coefficients(alpha)
    assert PLANE.coefficients(alpha, outside=True)["weights"].tolist() == pytest.approx(alpha)


@pytest.mark.parametrize("alpha", ["0.3", None, [0.1, [0.2]], {"conv": 0.3}, object()])
def test_what_is_no_number(alpha):
    with pytest.raises(TypeError, match=r"alpha=.* cannot be read as numbers .*: expected a number in \[0, 1\]"):
        LINE.coefficients(alpha)


def test_alpha_can_be_learned():
    alpha = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    weights = LINE.theta(LINE.coefficients(alpha))
    weights["head.weight"].sum().backward()
    first, second = LINE.vertex(0)["head.weight"], LINE.vertex(1)["head.weight"]
    torch.testing.assert_close(alpha.grad, (second - first).sum())


def test_precision_follows_the_weights():
    assert LINE.coefficients(0.3)["weights"].dtype == torch.float64  # Small is float64
    assert Subspace(nn.Linear(2, 2), Line()).coefficients(0.3)["weights"].dtype == torch.float32
    assert Subspace(nn.Linear(2, 2).half(), Line()).coefficients(0.3)["weights"].dtype == torch.float32
