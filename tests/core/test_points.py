import math

import numpy as np
import pytest
import torch
from helpers import Small
from torch import nn

from subspaces import Bezier, Line, Simplex, Subspace


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


@pytest.mark.parametrize("alpha", [0, 1, True, torch.tensor(1)])
def test_whole_numbers_are_endpoints(alpha):
    assert LINE.coefficients(alpha)["weights"].tolist() == [1 - int(alpha), int(alpha)]


@pytest.mark.parametrize("form", [list, tuple, np.array, torch.tensor])
def test_forms_of_one_point_on_a_simplex(form):
    for c in PLANE.coefficients(form(POINT)).values():
        torch.testing.assert_close(c, torch.tensor(POINT, dtype=torch.float64), check_dtype=False)


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


def test_points_by_name_leave_the_rest_at_the_midpoint():
    found = by_name(LINE, {"conv": 0.1, "conv.bias": 1.0, "head.weight": torch.tensor(0.2)})
    ends = {name: c[1].unique().tolist() for name, c in found.items()}
    assert ends.pop("conv.weight") == pytest.approx([0.1])
    assert ends.pop("conv.bias") == [1.0]
    assert ends.pop("head.weight") == pytest.approx([0.2])
    assert set(ends) == {"norm.weight", "norm.bias", "head.bias"}
    assert all(end == [0.5] for end in ends.values())


@pytest.mark.parametrize("shape", [Line(), Bezier(2), Simplex(3)], ids=str)
def test_one_point_per_weight(shape):
    members = Subspace(lambda: nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last), shape, seed=1)
    alpha = members.sample(per="weight")
    found = by_name(members, alpha)
    for name, value in alpha.items():
        expected = shape.coefficients(value)  # [*shape, m]
        assert expected.shape == (*members.vertex(0)[name].shape, shape.vertices)
        torch.testing.assert_close(found[name], expected.movedim(-1, 0))


def test_names_of_tied_weights_are_all_known():
    part = nn.Linear(2, 2)
    tied = Subspace(nn.Sequential(part, part), Line(), seed=0)
    first, second = by_name(tied, {"0.weight": 0.3}), by_name(tied, {"1.weight": 0.3})
    assert first["0.weight"][1].unique().tolist() == pytest.approx([0.3])
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("members", "alpha", "expected"),
    [
        (LINE, [0.1, 0.2], r"alpha has shape \(2,\): expected \(\) .*Line\(\), or \(3,\) .* 3 layers"),
        (LINE, [[0.1, 0.2, 0.3]], r"shape \(1, 3\): expected \(\)"),
        (PLANE, 0.3, r"alpha has shape \(\): expected \(3,\) .*Simplex\(m=3\), or \(3, 3\)"),
        (PLANE, [0.5, 0.5], r"shape \(2,\): expected \(3,\)"),
        (PLANE, [POINT, POINT], r"shape \(2, 3\): expected \(3,\)"),
        (LINE, {"conv": [0.1, 0.2]}, r"alpha\['conv'\] has shape \(2,\): expected \(\), one point"),
        (PLANE, {"head": 0.5}, r"alpha\['head'\] has shape \(\): expected \(3,\), one point"),
        (
            LINE,
            {"head.bias": [0.1, 0.2, 0.3]},
            r"\['head.bias'\] has shape \(3,\): .*or \(2,\) for one per weight",
        ),
        (PLANE, {"head.bias": POINT + POINT}, r"alpha\['head.bias'\] has shape \(6,\): .*or \(2, 3\)"),
    ],
)
def test_wrong_shape(members, alpha, expected):
    for ask in (members.coefficients, members.at):
        with pytest.raises(ValueError, match=expected):
            ask(alpha)


@pytest.mark.parametrize("alpha", [-0.05, 1.05, [0.2, 0.3, 1.5], {"conv": -1}, {"head.bias": [0.5, 1.1]}])
def test_off_the_line_only_on_request(alpha):
    with pytest.raises(ValueError, match=r"not a point of Line\(\): .*\[0, 1\]; pass outside=True"):
        LINE.coefficients(alpha)
    for c in by_name(LINE, alpha, outside=True).values():
        torch.testing.assert_close(c.sum(0), torch.ones_like(c[0]))


def test_off_the_line_is_extrapolation():
    assert LINE.coefficients(-0.05, outside=True)["weights"].tolist() == pytest.approx([1.05, -0.05])
    assert LINE.coefficients(1.05, outside=True)["weights"].tolist() == pytest.approx([-0.05, 1.05])


def test_off_the_simplex_only_on_request():
    alpha = [-0.1, 0.6, 0.5]
    with pytest.raises(ValueError, match=r"-0.1.*not a point of Simplex\(m=3\): .*pass outside=True"):
        PLANE.coefficients(alpha)
    assert PLANE.coefficients(alpha, outside=True)["weights"].tolist() == pytest.approx(alpha)


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("alpha", [[0.2, 0.3, 0.4], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [POINT, POINT, [0.5, 0.5, 0.5]]])
def test_simplex_points_sum_to_one(alpha, outside):
    with pytest.raises(ValueError, match=r"not a point of Simplex\(m=3\): expected .*numbers that sum to 1$"):
        PLANE.coefficients(alpha, outside)


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_a_number_is_never_a_point(bad, outside):
    wrong = [(LINE, bad), (LINE, [0.1, bad, 0.3]), (LINE, {"conv": bad}), (LINE, {"head.bias": [0.5, bad]})]
    wrong += [(PLANE, [bad, 0.5, 0.5]), (PLANE, [POINT, POINT, [0.5, 0.5, bad]])]
    for members, alpha in wrong:
        with pytest.raises(ValueError, match=f"{bad}.* is not a point of"):
            members.coefficients(alpha, outside)


@pytest.mark.parametrize("alpha", ["0.3", None, [0.1, [0.2]], ["a", "b", "c"], object(), 10**400])
def test_what_is_no_number(alpha):
    with pytest.raises(TypeError, match=r"alpha=.* cannot be read as numbers .*: expected a number in \[0, 1\]"):
        LINE.coefficients(alpha)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("haed", r"did you mean 'head'\?"),
        ("conv.wieght", r"did you mean 'conv.weight'\?"),
        ("zzz", r"expected one of 'conv', 'norm', 'head', 'conv.weight'.*, …"),
        (7, "expected one of 'conv'"),
    ],
)
def test_unknown_layer(name, hint):
    with pytest.raises(KeyError, match=rf"alpha names {name!r}, which is no layer and no trainable parameter: {hint}"):
        LINE.at({"conv": 0.2, name: 0.3})


def test_frozen_layers_are_unknown():
    module = Small()
    module.conv.requires_grad_(False)
    with pytest.raises(KeyError, match="alpha names 'conv'"):
        Subspace(module, Line()).at({"conv": 0.3})


def test_bad_alpha_changes_nothing():
    members = family(Line())
    before = {name: value.clone() for name, value in members.state_dict().items()}
    x = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    for alpha in (2.0, math.nan, [0.1], {"nowhere": 0.1}):
        with pytest.raises((ValueError, KeyError)):
            members(x, alpha=alpha)
    assert all(torch.equal(value, before[name]) for name, value in members.state_dict().items())


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
