"""What a program interpolates, and what points may be called."""

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import quick
from hypothesis import given
from hypothesis import strategies as st
from production_cases import card
from torch import nn
from torch.testing import assert_close

import subspaces as ss
from subspaces.export.arguments import choose
from subspaces.export.program import anchors, basis, inside

SHAPES = [ss.Line(), ss.Bezier(), ss.Simplex(2), ss.Simplex(3), ss.Simplex(5)]


def double(alpha: Any) -> torch.Tensor:
    return torch.tensor(alpha, dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_anchor_is_its_own(shape: ss.Shape) -> None:
    places = anchors(shape)
    found = torch.stack([basis(shape, double(place)) for place in places])
    assert_close(found, torch.eye(len(places), dtype=torch.float64))


@quick
@given(st.sampled_from(SHAPES), st.integers(0, 2**31))
def test_weights_of_anchors_sum_to_one(shape: ss.Shape, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    alpha = shape.sample((), lambda size: torch.rand(size, generator=generator, dtype=torch.float64))
    assert_close(basis(shape, alpha).sum(), torch.ones((), dtype=torch.float64))
    assert_close(inside(shape, alpha), alpha)
    assert float(inside(ss.Line(), torch.tensor(1.5))) == 1.0


def test_a_basis_is_exact_for_what_bends_no_more_than_it_does() -> None:
    """Straight between the points of a line, and quadratic on a simplex."""
    line, triangle = ss.Line(), ss.Simplex(3)
    assert_close(basis(line, double(0.234)) @ (3 * double(anchors(line)) - 1), double(3 * 0.234 - 1))

    def bent(x: torch.Tensor) -> torch.Tensor:
        return x[..., 0] ** 2 + 2 * x[..., 0] * x[..., 1] - 3 * x[..., 2] ** 2 + x[..., 1]

    alpha = double([0.2, 0.5, 0.3])
    assert_close(basis(triangle, alpha) @ bent(double(anchors(triangle))), bent(alpha))


def test_a_simplex_is_its_networks_at_vertices_and_on_the_middles_of_edges(exported: Any, truth: Any) -> None:
    """It was trained with one alpha for each layer, and takes one for all."""
    program, right = torch.export.load(exported("simplex.pt2")).module(), truth("simplex")
    for place in ([0.0, 1.0, 0.0], [0.5, 0.0, 0.5]):
        assert_close(program(right.images, torch.tensor(place)), right.probabilities(place), atol=1e-6, rtol=0)
    assert "measured at 6 points" in card(exported("simplex.pt2"))


def test_a_family_without_batch_norm_is_exact_everywhere(tmp_path: Path) -> None:
    family = ss.Subspace(lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), ss.Bezier())
    x = torch.rand(3, 1, 2, 2)
    path = ss.export(family, tmp_path / "net.pt2", point="family", example=x, progress=False)
    program = torch.export.load(path).module()
    with torch.no_grad():
        for alpha in (0.0, 0.123, 0.77):
            assert_close(program(x, torch.tensor(alpha)), family.at(alpha)(x).softmax(-1))
    assert "measured at" not in card(path)


@pytest.mark.parametrize(
    ("point", "shape", "alphas"),
    [
        ("midpoint", ss.Line(), [0.5]),
        ("0.3", ss.Line(), [0.3]),
        (0.3, ss.Bezier(), [0.3]),
        ("ensemble", ss.Line(), [0.1, 0.9]),
        ([0.2, 0.3, 0.5], ss.Simplex(3), [[0.2, 0.3, 0.5]]),
        (torch.tensor([0.25, 0.75]), ss.Simplex(2), [[0.25, 0.75]]),
        (["1,0", "0,1"], ss.Simplex(2), [[1.0, 0.0], [0.0, 1.0]]),
        ("ensemble", ss.Simplex(2), [[1.0, 0.0], [0.0, 1.0]]),
    ],
)
def test_points_as_one_may_write_them(point: Any, shape: ss.Shape, alphas: list[Any]) -> None:
    chosen = choose(point, shape, layers=9)
    assert list(chosen.alphas) == alphas
    assert chosen.kind == ("network" if len(alphas) == 1 else "ensemble")
