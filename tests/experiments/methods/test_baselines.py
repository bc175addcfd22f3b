"""The moving average, early stopping and SAM: by hand, and against torch's own."""

import math

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.testing import assert_close

import subspaces as ss
from subspaces.experiments.methods import Backward
from subspaces.experiments.methods.baselines import Averaging, EarlyStopping, Ema, Stopping, sharp_gradient

SCORES = [(0.5, 0.4), (0.8, 0.6), (0.7, 0.9), (0.8, 0.8)]


# The moving average


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


# Early stopping


def filled(value: float) -> ss.Subspace:
    family = ss.Subspace(nn.Linear(2, 2), ss.Point())
    with torch.no_grad():
        for omega in family.omega.values():
            omega.fill_(value)
    return family


def hooks() -> Stopping:
    return Stopping(EarlyStopping(), filled(0), len(SCORES), 0)


def offered(stopping: Stopping, scores: list[tuple[float, float]], start: int = 1) -> Stopping:
    for epoch, (validation, test) in enumerate(scores, start):
        stopping.family = filled(epoch)
        stopping.after_epoch(epoch, {"validation_accuracy": validation, "test_accuracy": test})
    return stopping


def test_the_first_of_the_best_is_kept_and_the_test_set_chooses_nothing():
    stopping = offered(hooks(), SCORES)
    assert all(row.eq(2).all() for row in stopping.best.values())
    assert stopping.epoch == 2
    assert stopping.summary()["stopping"] == [
        {"chosen_on": "validation", "epoch": 2, "validation_accuracy": 0.8, "test_accuracy": 0.6},
        {"chosen_on": "test", "epoch": 3, "validation_accuracy": 0.7, "test_accuracy": 0.9},
    ]


def test_it_continues_from_its_state():
    for middle in range(len(SCORES) + 1):
        first = offered(hooks(), SCORES[:middle])
        other = hooks()
        other.load(first.kept())
        offered(other, SCORES[middle:], middle + 1)
        whole = offered(hooks(), SCORES)
        assert other.summary() == whole.summary()
        assert all(torch.equal(other.best[name], row) for name, row in whole.best.items())


# SAM


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
