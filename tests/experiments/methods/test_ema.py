"""The moving average against a loop by hand, and against torch's own."""

import pytest
import torch
from subspaces.experiments.methods.ema import Averaging, Ema
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.testing import assert_close

import subspaces as ss


def averaging(network: nn.Module, decay: float) -> Averaging:
    return Averaging(Ema(ema_decay=decay), ss.Subspace(network, ss.Point()), 1, 0)


def walk(steps: int) -> list[torch.Tensor]:
    return list(torch.randn(steps, 5, generator=torch.Generator().manual_seed(0)).cumsum(0))


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("steps", [1, 2, 30])
def test_it_is_the_weighted_mean_of_all_steps(decay, steps):
    network = nn.Linear(5, 1, bias=False)
    nn.init.constant_(network.weight, 100.0)  # a start that must leave no trace
    hooks = averaging(network, decay)
    for value in walk(steps):
        with torch.no_grad():
            hooks.family.omega["weights"].copy_(value)
        hooks.after_step()
    weights = [decay ** (steps - 1 - step) for step in range(steps)]
    expected = sum(w * value.double() for w, value in zip(weights, walk(steps), strict=True)) / sum(weights)
    found = hooks.current_family().midpoint().weight[0]
    assert_close(found, expected.float(), rtol=1e-5, atol=1e-5, check_stride=False)


def test_after_many_steps_it_is_that_of_torch():
    hooks = averaging(nn.Linear(3, 2), 0.9)
    theirs = AveragedModel(hooks.family.midpoint(), multi_avg_fn=get_ema_multi_avg_fn(0.9))
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        with torch.no_grad():
            for omega in hooks.family.omega.values():
                omega.add_(torch.randn(omega.shape, generator=generator))
        theirs.update_parameters(hooks.family.midpoint())
        hooks.after_step()
    ours = dict(hooks.current_family().midpoint().named_parameters())
    assert_close(ours, dict(theirs.module.named_parameters()), rtol=1e-5, atol=1e-5)


def test_no_step_has_no_average():
    with pytest.raises(ValueError, match="no step"):
        averaging(nn.Linear(2, 1), 0.9).current_family()
