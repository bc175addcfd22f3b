"""cResNet20 is the network of the paper: its size, its parts, its first weights."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import subspaces as ss
from subspaces.networks import CResNet20


@pytest.fixture
def network() -> CResNet20:
    torch.manual_seed(0)
    return CResNet20()


def convolutions(network: nn.Module) -> dict[str, nn.Conv2d]:
    return {name: part for name, part in network.named_modules() if isinstance(part, nn.Conv2d)}


def test_size(network: CResNet20):
    assert sum(parameter.numel() for parameter in network.parameters()) == 272_464
    assert len([conv for conv in convolutions(network).values() if conv.kernel_size == (3, 3)]) == 19


@pytest.mark.parametrize("classes", [10, 7])
def test_shapes(classes: int):
    network = CResNet20(classes).eval()
    shapes = []
    for block in network.blocks:
        block.register_forward_hook(lambda _, __, output: shapes.append(tuple(output.shape[1:])))
    assert network(torch.randn(2, 3, 32, 32)).shape == (2, classes)
    assert shapes == [(16, 32, 32)] * 3 + [(32, 16, 16)] * 3 + [(64, 8, 8)] * 3


def test_strided_shortcuts_alone_are_convolutions(network: CResNet20):
    for index, block in enumerate(network.blocks):
        assert block.conv1.stride == ((2, 2) if index in (3, 6) else (1, 1))
        assert block.conv2.stride == (1, 1)
        if index in (3, 6):
            conv, norm = block.shortcut
            assert (conv.kernel_size, conv.stride, conv.bias) == ((1, 1), (2, 2), None)
            assert isinstance(norm, nn.BatchNorm2d)
        else:
            assert len(block.shortcut) == 0


def test_convolutions_are_kaiming_normal(network: CResNet20):
    for name, conv in convolutions(network).items():
        weight = conv.weight.detach()
        count, fan_in = weight.numel(), weight[0].numel()
        standard = weight.double() * math.sqrt(fan_in / 2)  # numbers of a standard normal distribution
        assert abs(standard.mean()) < 5 / math.sqrt(count), name
        assert abs(standard.var() - 1) < 5 * math.sqrt(2 / count), name
        assert abs((standard**4).mean() - 3) < 5 * math.sqrt(96 / count), name  # a uniform one would have 1.8


def test_norms_start_as_the_identity(network: CResNet20):
    norms = [part for part in network.modules() if isinstance(part, nn.BatchNorm2d)]
    assert len(norms) == 21
    for norm in norms:
        assert torch.equal(norm.weight, torch.ones_like(norm.weight))
        assert torch.equal(norm.bias, torch.zeros_like(norm.bias))


def test_nothing_but_norms_has_a_bias(network: CResNet20):
    assert all(conv.bias is None for conv in convolutions(network).values())
    assert isinstance(network.head, nn.Conv2d)
    assert network.head.weight.shape == (10, 64, 1, 1)


def reference(state: dict[str, Tensor], x: Tensor, drop: float = 0.0) -> Tensor:
    """Run the network from its weights alone, in eval mode; `drop` scales the branch where dropout acts."""

    def norm(y: Tensor, name: str) -> Tensor:
        mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        return F.batch_norm(y, mean, var, state[f"{name}.weight"], state[f"{name}.bias"])

    y = F.relu(norm(F.conv2d(x, state["stem.weight"], padding=1), "norm"))
    for index in range(9):
        name = f"blocks.{index}"
        stride = 2 if index in (3, 6) else 1
        branch = F.relu(norm(F.conv2d(y, state[f"{name}.conv1.weight"], stride=stride, padding=1), f"{name}.norm1"))
        branch = norm(F.conv2d(branch, state[f"{name}.conv2.weight"], padding=1), f"{name}.norm2")
        if stride == 2:
            y = norm(F.conv2d(y, state[f"{name}.shortcut.0.weight"], stride=2), f"{name}.shortcut.1")
        y = F.relu(branch * (1 - drop) + y)
    return F.adaptive_avg_pool2d(y, 1).flatten(1) @ state["head.weight"].flatten(1).t()


def test_forward(network: CResNet20):
    x = torch.randn(4, 3, 32, 32)
    network(x)  # statistics that are not 0 and 1
    network.eval()
    assert_close(network(x), reference(network.state_dict(), x), rtol=1e-4, atol=1e-4)


def test_dropout_acts_on_the_branch_before_the_addition():
    network = CResNet20(dropout=1.0).eval()  # all of the branch is dropped
    x = torch.randn(2, 3, 32, 32)
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.bias)  # what a norm adds is dropped too
    plain = network(x)
    for part in network.modules():
        if isinstance(part, nn.Dropout):
            part.train()
    assert_close(network(x), reference(network.state_dict(), x, drop=1.0), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(network(x), plain)


def test_dropout_has_no_part_in_the_state(network: CResNet20):
    CResNet20(dropout=0.4).load_state_dict(network.state_dict(), strict=True)


def test_layers_of_a_family():
    """Layerwise means every convolution, every batch norm, and the head."""
    family = ss.Subspace(CResNet20, ss.Line(), layerwise=True)
    assert len(family.layers) == 22 + 21
    assert sum(omega.shape[1] for omega in family.omega.values()) == 272_464


def test_every_vertex_is_kaiming_normal():
    torch.manual_seed(0)
    family = ss.Subspace(CResNet20, ss.Line())
    for index in range(2):
        weight = family.vertex(index)["blocks.8.conv2.weight"]
        assert weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 64)), rel=0.03)
    assert family.distances().cos2[0, 1] < 1e-3  # independent ones
