"""The gradient of the worst neighbour, by hand."""

import math

import torch
from subspaces.experiments.methods.sam import sharp_gradient
from torch import nn
from torch.testing import assert_close

from subspaces.experiments.methods import Backward


def test_on_a_parabola_by_hand():
    """loss = ½ (3 x² + y²) at (1, 2): g = (3, 2), ‖g‖ = √13, the gradient at θ + ρ g/‖g‖ is (3 x', y')."""
    x, y = nn.Parameter(torch.tensor([1.0])), nn.Parameter(torch.tensor([2.0]))
    calls = []

    def backward(first: bool) -> None:
        calls.append((first, x.item(), y.item()))
        x.grad = y.grad = None
        (0.5 * (3 * x.square() + y.square())).sum().backward()

    sharp_gradient(Backward(backward, [[x, y]]), 0.5)
    there = 1 + 0.5 * 3 / math.sqrt(13), 2 + 0.5 * 2 / math.sqrt(13)
    assert [first for first, *_ in calls] == [True, False]
    assert_close(torch.tensor(calls[1][1:]), torch.tensor(there))
    assert_close(torch.cat([x.grad, y.grad]), torch.tensor([3 * there[0], there[1]]))
    assert (x.item(), y.item()) == (1.0, 2.0)


def test_what_has_no_gradient_stays():
    used, unused = nn.Parameter(torch.tensor([0.1])), nn.Parameter(torch.tensor([0.7]))

    def backward(first: bool) -> None:
        used.grad = None
        used.square().sum().backward()
        assert unused.item() == torch.tensor(0.7).item()

    sharp_gradient(Backward(backward, [[used, unused]]), 0.05)
    assert unused.grad is None
    assert_close(used.grad, torch.tensor([2 * 0.15]))
    assert used.item() == torch.tensor(0.1).item()  # exactly, not up to rounding


def test_a_gradient_of_zero_moves_nothing():
    parameter = nn.Parameter(torch.zeros(3))

    def backward(first: bool) -> None:
        parameter.grad = None
        parameter.square().sum().backward()

    sharp_gradient(Backward(backward, [[parameter]]), 0.05)
    assert parameter.eq(0).all()
    assert parameter.grad.eq(0).all()
