"""Families that are written and read as folders and repositories."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import subspaces as ss


class Net(nn.Module):
    """A frozen layer, a batch norm, and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(5, 6).requires_grad_(False)
        nn.init.constant_(self.base.weight, 0.5)
        nn.init.constant_(self.base.bias, -1.0)
        self.norm = nn.BatchNorm1d(6)
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(self.norm(self.base(x))).relu())


def by_part(network: Any) -> list[dict[str, Any]]:
    parts = [(network.norm.parameters(), {"lr": 0.5}), (network.first.parameters(), {}), ([network.second.bias], {})]
    return [{"params": [*parameters], **options} for parameters, options in parts]


FAMILIES: dict[str, Callable[[], ss.Subspace]] = {
    "line": lambda: ss.Subspace(Net, ss.Line()),
    "layerwise": lambda: ss.Subspace(Net, ss.Simplex(3), layerwise=True),
    "curve of bfloat16": lambda: ss.Subspace(lambda: Net().bfloat16(), ss.Bezier(2)),
    "groups": lambda: ss.Subspace(Net, ss.Line(), groups=by_part),
}


def used(name: str = "line") -> ss.Subspace:
    """Return a family after some use: its buffers, random numbers and vertices are its own."""
    family = FAMILIES[name]()
    with torch.no_grad():
        for parameter in family.omega.values():
            parameter.add_(torch.randn_like(parameter))
    for _ in range(3):
        family(torch.randn(4, 5, dtype=family.template.base.weight.dtype))
    return family


def assert_same(family: ss.Subspace, loaded: ss.Subspace) -> None:
    """Compare all tensors bit for bit, statistics and random numbers too."""
    before, after = family.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    for key in before.keys() - {"calibrated"}:  # a number of batches, of which a file says only whether there are any
        assert before[key].dtype == after[key].dtype
        assert torch.equal(before[key], after[key]), key
    described = (loaded.shape, loaded.layerwise, loaded.layout, loaded.is_calibrated)
    assert described == (family.shape, family.layerwise, family.layout, family.is_calibrated)
