"""The call belongs to the network: its inputs by position or name, the point by keyword."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import subspaces as ss


class Pair(nn.Module):
    """Takes two inputs, such as nodes and edges, and an optional third one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, x: Tensor, other: Tensor, scale: Any = None, *, shift: float = 0.0) -> Tensor:
        return (self.first(x) + self.second(other) + shift) * (1 if scale is None else scale)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(3, 2)

    def forward(self, x: Tensor, mask: Any = None, labels: Any = None, **rest: Any) -> Tensor:
        out: Tensor = self.part(x)
        return out if mask is None else out * mask


x, other = torch.randn(5, 3), torch.randn(5, 4)


@pytest.mark.parametrize("alpha", [0.3, [0.3, 0.7]], ids=["line", "simplex"])
def test_all_positions_are_the_networks(alpha):
    family = ss.Subspace(Pair, ss.Line() if alpha == 0.3 else ss.Simplex(2))
    network = family.at(alpha)
    scale = torch.rand(5, 1)
    assert_close(family(x, other, alpha=alpha), network(x, other))
    assert_close(family(x, other, scale, alpha=alpha, shift=2.0), network(x, other, scale, shift=2.0))
    assert_close(family(x, scale=2.0, other=other, alpha=alpha), network(x, other, 2.0))
    assert family(x, other, samples=2).shape == (5, 2)


@pytest.mark.parametrize(
    ("shape", "second"),
    [
        (ss.Line(), 0.3),
        (ss.Line(), torch.tensor(0.3)),
        (ss.Line(), [0.1]),
        (ss.Simplex(3), (1, 0, 0)),
        (ss.Simplex(3), torch.rand(1, 3)),
    ],
)
def test_a_point_in_second_place_is_refused_not_taken_for_an_input(shape, second):
    family = ss.Subspace(Masked, shape)
    with pytest.raises(TypeError, match=r"positions belong to the network's inputs; write family\(x, alpha=…\)"):
        family(x, second)
    assert family.eval()(x, mask=0.5).shape == (5, 2)  # by its name an input may be anything


@pytest.mark.parametrize("mask", [torch.ones(5, 2), torch.ones(5, 1), torch.ones(1, 2), None, True])
def test_an_input_of_the_network_in_second_place_is_an_input(mask):
    family = ss.Subspace(Masked, ss.Simplex(3)).eval()
    assert_close(family(x, mask), family.midpoint().eval()(x, mask))


@pytest.mark.parametrize("name", ["alpha", "samples", "features", "outside"])
def test_a_network_with_an_input_of_ours_is_refused(name):
    space: dict[str, Any] = {"nn": nn}
    exec(
        "class Net(nn.Linear):\n"
        "    def __init__(self):\n"
        "        super().__init__(3, 2)\n"
        f"    def forward(self, x, {name}=1.0):\n"
        f"        return super().forward(x) * {name}\n",
        space,
    )
    with pytest.raises(ValueError, match=f"an input named '{name}', which a family's own call takes: wrap"):
        ss.Subspace(space["Net"], ss.Line())
