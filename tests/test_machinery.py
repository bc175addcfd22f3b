"""A family is an ordinary module to autocast, other precisions, checkpoints and other modules."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_same_state, snapshot
from torch import Tensor, nn
from torch.testing import assert_close

import subspaces as ss

ALPHA = [0.5, 0.2, 0.3]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.conv(x))).flatten(1))


class Smooth(nn.Module):
    """Has no batch norm, so that an example's output does not depend on the others."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(5, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.body(x))))


def family(make: Callable[[], nn.Module] = Net, shape: ss.Shape | None = None, **options: Any) -> ss.Subspace:
    torch.manual_seed(0)
    return ss.Subspace(make, shape or ss.Simplex(3), seed=0, **options)


def images(seed: int = 0, size: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 1, 4, 4, generator=generator), torch.randint(3, (size,), generator=generator)


def vectors(seed: int = 0, size: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 5, generator=generator), torch.randint(3, (size,), generator=generator)


def loss_of(module: ss.Subspace, seed: int = 0) -> Tensor:
    x, y = images(seed)
    return F.cross_entropy(module(x), y) + module.penalty(beta=0.3)


def train(module: ss.Subspace, optimizer: torch.optim.Optimizer, seeds: range) -> list[Tensor]:
    losses = []
    for seed in seeds:
        loss = loss_of(module, seed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


# Mixed precision


def test_autocast_mixes_in_full_precision_and_runs_in_half():
    module = family()
    plain, exact = module.at(ALPHA), module.theta(module.coefficients(ALPHA))
    x, y = images(size=32)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(module.theta(module.coefficients(ALPHA)), exact, rtol=0, atol=0)
        outputs = module(x, alpha=ALPHA), plain(x)
    assert outputs[0].dtype == torch.bfloat16
    assert torch.equal(*outputs)
    assert module.template.norm.running_mean.dtype == torch.float32
    for output in outputs:
        F.cross_entropy(output.float(), y).backward()
    c = module.coefficients(ALPHA)
    for group in module.layout.groups:
        row = group.pack({name: parameter.grad for name, parameter in plain.named_parameters()})
        assert_close(module.omega[group.name].grad, torch.outer(c[group.name], row))
    with torch.autocast("cpu", torch.bfloat16):
        assert {parameter.dtype for parameter in module.at(ALPHA).parameters()} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_whole_family_in_another_precision(dtype: torch.dtype):
    module = family(Smooth).to(dtype)
    x, y = vectors()
    output = module(x.to(dtype))
    assert output.dtype == dtype
    (F.cross_entropy(output.float(), y) + module.penalty()).backward()
    for omega in module.omega.values():
        assert omega.dtype == omega.grad.dtype == dtype
        assert omega.grad.isfinite().all()
    assert module.rng.dtype == torch.int64
    assert torch.equal(module.rng[0], family(Smooth).rng[0])
    network = module.at(ALPHA)
    assert {parameter.dtype for parameter in network.parameters()} == {dtype}
    assert_close(network.eval()(x.to(dtype)), module.eval()(x.to(dtype), alpha=ALPHA))


# State


@pytest.mark.parametrize("layerwise", [False, True], ids=["whole", "layerwise"])
def test_resumed_training_is_bitwise_the_same(layerwise: bool):
    module = family(layerwise=layerwise)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    train(module, optimizer, range(3))
    file = io.BytesIO()
    torch.save({"family": module.state_dict(), "optimizer": optimizer.state_dict()}, file)
    losses = train(module, optimizer, range(3, 6))
    file.seek(0)
    checkpoint = torch.load(file, weights_only=True)
    torch.manual_seed(99)
    other = ss.Subspace(Net, ss.Simplex(3), layerwise)  # other weights, another seed
    other_optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    assert not torch.equal(other.rng, checkpoint["family"]["rng"])
    other.load_state_dict(checkpoint["family"])
    other_optimizer.load_state_dict(checkpoint["optimizer"])
    assert torch.equal(torch.stack(train(other, other_optimizer, range(3, 6))), torch.stack(losses))
    assert_same_state(other, snapshot(module))


@pytest.mark.filterwarnings("ignore::subspaces.core.batchnorm.RandomPointWarning")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.filterwarnings("ignore::subspaces.core.batchnorm.StatisticsWarning")
def test_without_autograd(mode: Callable[[], Any]):
    module, plain = family(), family()
    x, _ = images()
    expected = plain(x).detach(), plain.eval()(x, alpha=ALPHA).detach()
    with mode():
        assert_close(module(x), expected[0])
        assert_close(module.eval()(x, alpha=ALPHA), expected[1])
        network = module.midpoint()
    loss_of(module.train()).backward()  # and training goes on, of the network that was cut out too
    assert all(omega.grad.isfinite().all() for omega in module.omega.values())
    ss.recalibrate(network.train(), [x])(x).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_families_nest_in_other_modules():
    """A part of a network can be a family, next to ordinary parts."""
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(5, 4), ss.Subspace(lambda: nn.Linear(4, 3), ss.Line(), seed=0))
    x, y = vectors()
    F.cross_entropy(whole(x), y).backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in whole.parameters())
    nested = ss.Subspace(whole, ss.Line(), init="point", seed=1)
    assert nested(x).shape == (8, 3)


def test_casting_all_weights_at_once_changes_no_bit():
    module = family()
    x, _ = images(size=16)
    with torch.autocast("cpu", torch.bfloat16):
        one_by_one = module(x, alpha=ALPHA)
        module.cast_weights = True
        assert torch.equal(module(x, alpha=ALPHA), one_by_one)


def test_checkpointing_a_family_needs_a_point_drawn_before():
    from torch.utils.checkpoint import checkpoint

    module = ss.Subspace(lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), ss.Line())
    x = torch.randn(5, 4)
    with pytest.raises(RuntimeError, match=r"drawn in a backward pass.*checkpoint\(family, x, alpha=family.sample\(\)"):
        checkpoint(module, x, use_reentrant=False).sum().backward()
    alpha = module.sample()
    module.zero_grad()
    checkpoint(module, x, alpha=alpha, use_reentrant=False).square().sum().backward()
    found = module.omega["weights"].grad.clone()
    module.zero_grad()
    module(x, alpha=alpha).square().sum().backward()
    assert_close(found, module.omega["weights"].grad)
