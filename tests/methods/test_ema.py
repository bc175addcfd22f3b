"""The moving average against a loop by hand, and against torch's own."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.testing import assert_close

from subspaces.methods.ema import MovingAverage


def walk(steps: int) -> list[torch.Tensor]:
    return list(torch.randn(steps, 5, generator=torch.Generator().manual_seed(0)).cumsum(0))


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("steps", [1, 2, 30])
def test_it_is_the_weighted_mean_of_all_steps(decay, steps):
    parameter = nn.Parameter(torch.full((5,), 100.0))  # a start that must leave no trace
    average = MovingAverage([parameter], decay)
    for value in walk(steps):
        with torch.no_grad():
            parameter.copy_(value)
        average.update()
    weights = [decay ** (steps - 1 - step) for step in range(steps)]
    expected = sum(w * value.double() for w, value in zip(weights, walk(steps), strict=True)) / sum(weights)
    (found,) = average.values()
    assert_close(found, expected.float(), rtol=1e-5, atol=1e-5)


def test_after_many_steps_it_is_that_of_torch():
    network = nn.Linear(3, 2)
    theirs = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    ours = MovingAverage(network.parameters(), 0.9)
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator))
        theirs.update_parameters(network)
        ours.update()
    assert_close(ours.values(), [value.detach() for value in theirs.module.parameters()], rtol=1e-5, atol=1e-5)


def test_no_step_has_no_average():
    with pytest.raises(ValueError, match="no step"):
        MovingAverage([torch.zeros(2)], 0.9).values()
