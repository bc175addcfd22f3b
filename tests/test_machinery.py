"""A family is an ordinary module to optimisers, weight averaging, autocast, schedules and state dicts."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import swa_utils
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


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_all_equal(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    assert [name for name, value in actual.items() if not torch.equal(value, expected[name])] == []


# Optimisers

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "Adam": {},
    "AdamW": {"amsgrad": True},
    "RMSprop": {},
    "Rprop": {},
    "Adafactor": {},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_optimizer_moves_every_vertex(name: str):
    module = family()
    before = [{key: value.clone() for key, value in module.vertex(i).items()} for i in range(3)]
    optimizer = getattr(torch.optim, name)(module.parameters(), **OPTIMIZERS[name])
    train(module, optimizer, range(3))
    for index, old in enumerate(before):
        for key, value in module.vertex(index).items():
            assert value.isfinite().all()
            # A bias before a batch norm has no gradient but rounding.
            assert key == "conv.bias" or not torch.equal(value, old[key]), (index, key)


ELEMENTWISE = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, weight_decay=0.01),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_optimizer_on_omega_is_one_on_separate_vertices(name: str):
    """Each parameter of each vertex by itself, with the gradient c_i times that of a plain network."""
    module = family(Smooth).double()
    optimizer = ELEMENTWISE[name](module.parameters())
    separate = [{key: nn.Parameter(value.clone()) for key, value in module.vertex(i).items()} for i in range(3)]
    optimizers = [ELEMENTWISE[name](list(vertex.values())) for vertex in separate]
    plain = Smooth().double()
    for step in range(5):
        x, y = vectors(step)
        coefficients = module.sample()
        optimizer.zero_grad()
        F.cross_entropy(module(x.double(), alpha=coefficients), y).backward()
        optimizer.step()

        with torch.no_grad():
            for key, parameter in plain.named_parameters():
                parameter.copy_(sum(c * vertex[key] for c, vertex in zip(coefficients, separate, strict=True)))
        plain.zero_grad()
        F.cross_entropy(plain(x.double()), y).backward()
        for c, vertex, stepper in zip(coefficients, separate, optimizers, strict=True):
            for key, parameter in vertex.items():
                parameter.grad = c * plain.get_parameter(key).grad
            stepper.step()
    for index, vertex in enumerate(separate):
        for key, value in module.vertex(index).items():
            assert_close(value, vertex[key].detach(), rtol=1e-12, atol=1e-14)


# Gradients


def test_accumulated_gradients_are_those_of_one_large_batch():
    whole, parts = family(Smooth), family(Smooth)
    x, y = vectors(size=12)
    (F.cross_entropy(whole(x, alpha=ALPHA), y) + whole.penalty()).backward()
    for piece in (slice(4), slice(4, 8), slice(8, 12)):
        (F.cross_entropy(parts(x[piece], alpha=ALPHA), y[piece]) / 3).backward()
    parts.penalty().backward()
    for name, omega in whole.omega.items():
        assert_close(parts.omega[name].grad, omega.grad)


# Weight averaging


def test_moving_average():
    module, decay = family(), 0.9
    averaged = swa_utils.AveragedModel(module, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(decay), use_buffers=True)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    expected: dict[str, Tensor] = {}
    for seed in range(3):
        train(module, optimizer, range(seed, seed + 1))
        averaged.update_parameters(module)
        for name, omega in module.omega.items():
            now = omega.detach().clone()
            expected[name] = now if seed == 0 else decay * expected[name] + (1 - decay) * now
    for name, value in expected.items():
        assert_close(averaged.module.omega[name].detach(), value)
    assert averaged(images()[0]).isfinite().all()  # its random numbers still work


# Mixed precision


def test_autocast_mixes_in_full_precision_and_runs_in_half():
    module = family()
    x, y = images(size=32)
    expected = F.cross_entropy(module(x, alpha=ALPHA), y) + module.penalty()
    expected.backward()
    gradients = {name: omega.grad.clone() for name, omega in module.omega.items()}
    exact = family().theta(family().coefficients(ALPHA))
    module = family()
    with torch.autocast("cpu", torch.bfloat16):
        theta = module.theta(module.coefficients(ALPHA))
        output = module(x, alpha=ALPHA)
        loss = F.cross_entropy(output.float(), y) + module.penalty()
    assert output.dtype == torch.bfloat16
    assert {value.dtype for value in theta.values()} == {torch.float32}
    assert_all_equal(theta, exact)
    assert module.template.norm.running_mean.dtype == torch.float32
    assert_close(loss, expected, rtol=0.02, atol=0.02)
    loss.backward()
    for name, omega in module.omega.items():
        assert omega.grad.dtype == torch.float32
        assert F.cosine_similarity(omega.grad, gradients[name], dim=1).min() > 0.99


def test_autocast_is_bit_for_bit_that_of_the_plain_network():
    module = family()
    plain = module.at(ALPHA)
    x, y = images(size=32)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = module(x, alpha=ALPHA), plain(x)
    assert torch.equal(*outputs)
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
    assert_all_equal(snapshot(other), snapshot(module))


def test_copies_draw_the_same_points_and_go_their_own_way():
    module = family()
    train(module, torch.optim.SGD(module.parameters(), lr=0.1), range(2))
    other = copy.deepcopy(module)
    assert torch.equal(loss_of(module, 7), loss_of(other, 7))
    train(other, torch.optim.SGD(other.parameters(), lr=0.1), range(2))
    assert not torch.equal(module.omega["weights"], other.omega["weights"])
    assert not torch.equal(module.rng, other.rng)


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
    loss_of(module.train()).backward()  # and training goes on
    assert all(omega.grad.isfinite().all() for omega in module.omega.values())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_network_cut_out_without_autograd_can_be_trained(mode: Callable[[], Any]):
    module = family()
    with mode():
        network = module.midpoint()
    x, y = images()
    F.cross_entropy(network(x), y).backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
    ss.recalibrate(network, [x])


def test_families_nest_in_other_modules():
    """A part of a network can be a family, next to ordinary parts."""
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(5, 4), ss.Subspace(lambda: nn.Linear(4, 3), ss.Line(), seed=0))
    x, y = vectors()
    F.cross_entropy(whole(x), y).backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in whole.parameters())
    nested = ss.Subspace(whole, ss.Line(), init="point", seed=1)
    assert nested(x).shape == (8, 3)


class FullPrecisionHead(nn.Module):
    """A network that leaves autocast for its head and reads a weight outside of its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.body(x)
        with torch.autocast("cpu", enabled=False):
            return self.head(y.float()), self.body.weight.square().sum()


def test_a_network_may_leave_autocast():
    module = ss.Subspace(FullPrecisionHead, ss.Line())
    plain, x = module.at(0.3), torch.randn(5, 4)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = module(x, alpha=0.3), plain(x)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == torch.float32
        assert torch.equal(mine, theirs)


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
