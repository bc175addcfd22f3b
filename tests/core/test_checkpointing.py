"""Activation checkpointing inside a network gives the gradients that it has without."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import subspaces as ss


class Net(nn.Module):
    """Has a part that may be checkpointed, and in it another one."""

    def __init__(self, wanted: bool, part: nn.Module | None = None, **options: Any) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)
        self.inner = part or nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.3))
        self.outer = nn.Linear(8, 8)
        self.wanted, self.options = wanted, {"use_reentrant": False} | options

    def body(self, x: Tensor) -> Tensor:
        return self.outer(self.run(self.inner, x)).tanh()

    def run(self, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        return checkpoint(part, x, **self.options) if self.wanted else part(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.run(self.body, self.first(x).tanh()))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = nn.GRU(8, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x[:, None])[0][:, 0]


def gradients(wanted: bool, part: Callable[[], nn.Module | None]) -> list[Tensor]:
    """Return the gradients of two calls at different points in one graph."""
    torch.manual_seed(0)
    family = ss.Subspace(lambda: Net(wanted, part()), ss.Simplex(3), seed=0)
    x = torch.randn(6, 4)
    torch.manual_seed(1)
    (family(x, samples=2).square().sum() + family(x, alpha=[0.2, 0.3, 0.5]).sin().sum()).backward()
    return [omega.grad for omega in family.parameters()]


@pytest.mark.parametrize("part", [lambda: None, Recurrent], ids=["dropout", "recurrent"])
def test_the_gradients_are_the_same(part):
    for found, expected in zip(gradients(True, part=part), gradients(False, part=part), strict=True):
        assert torch.equal(found, expected)


def test_a_reentrant_checkpoint_is_refused_with_what_to_pass():
    family = ss.Subspace(lambda: Net(True, use_reentrant=True), ss.Line())
    with pytest.raises(RuntimeError, match=r"use_reentrant=True, which cannot.*pass use_reentrant=False"):
        family(torch.randn(2, 4))


def test_recurrent_parts_keep_no_weights_of_a_point():
    family = ss.Subspace(lambda: Net(True, Recurrent()), ss.Line(), seed=0)
    family(torch.randn(6, 4)).sum().backward()
    assert all(weight is None for weight in family.template.inner.part._flat_weights)
    assert family.midpoint()(torch.randn(6, 4)).shape == copy.deepcopy(family)(torch.randn(6, 4)).shape


@pytest.mark.parametrize("every", [1, 3])
def test_what_runs_again_leaves_fresh_statistics_alone(every):
    def made(wanted: bool) -> ss.Subspace:
        torch.manual_seed(0)
        family = ss.Subspace(lambda: Net(wanted, nn.BatchNorm1d(8)), ss.Line(), seed=0, statistics_every=every)
        for _ in range(4):
            family(torch.randn(6, 4)).square().sum().backward()
        return family

    again, once = made(True), made(False)
    assert again.is_calibrated
    for found, expected in zip(again.buffers(), once.buffers(), strict=True):
        assert torch.equal(found, expected)
    for found, expected in zip(again.parameters(), once.parameters(), strict=True):
        assert torch.equal(found.grad, expected.grad)
