"""The residual networks of the paper: their sizes, what they compute, their first weights."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import subspaces as ss
from subspaces.networks import CResNet, CResNet20, build

DEPTHS = (8, 14, 20, 32, 56)
BLOCKS = {  # widths, how many blocks in each stage, and the outputs of a block for each of its width
    **{f"cresnet{depth}": ((16, 32, 64), ((depth - 2) // 6,) * 3, 1) for depth in DEPTHS},
    "resnet18": ((64, 128, 256, 512), (2, 2, 2, 2), 1),
    "resnet50": ((64, 128, 256, 512), (3, 4, 6, 3), 4),
}
every = pytest.mark.parametrize("name", BLOCKS)


def made(name: str, classes: int = 7) -> Any:
    return build(name, classes=classes, image_shape=(3, 32, 32))


def expected_size(name: str, classes: int) -> int:
    """Count the parameters from the description of the network alone."""

    def conv(inputs: int, outputs: int, side: int) -> int:
        return side**2 * inputs * outputs + 2 * outputs  # with the scale and shift of its norm

    widths, depths, expansion = BLOCKS[name]
    total, inputs = conv(3, widths[0], 3), widths[0]
    for width, depth in zip(widths, depths, strict=True):
        outputs = expansion * width
        for position in range(depth):
            if expansion == 1:
                total += conv(inputs, width, 3) + conv(width, width, 3)
            else:
                total += conv(inputs, width, 1) + conv(width, width, 3) + conv(width, outputs, 1)
            if position == 0 and inputs != outputs:
                total += conv(inputs, outputs, 1)
            inputs = outputs
    return total + inputs * classes + (0 if name.startswith("cresnet") else classes)


@every
def test_size(name: str):
    with torch.device("meta"):
        network = made(name)
    assert sum(parameter.numel() for parameter in network.parameters()) == expected_size(name, 7)
    for depth in DEPTHS:
        if name == f"cresnet{depth}":
            convolutions = [part for part in network.modules() if isinstance(part, nn.Conv2d)]
            assert len([conv for conv in convolutions if conv.kernel_size == (3, 3)]) == depth - 1


def test_sizes_in_numbers():
    expected = {"cresnet20": (10, 272_464), "resnet18": (200, 11_271_432), "resnet50": (200, 23_910_152)}
    assert {name: (classes, expected_size(name, classes)) for name, (classes, _) in expected.items()} == expected


def reference(state: dict[str, Tensor], x: Tensor, drop: float = 0.0) -> Tensor:
    """Run a network from its weights alone, in eval mode; `drop` scales the branch where dropout acts."""

    def layer(y: Tensor, conv: str, norm: str, stride: int = 1) -> Tensor:
        weight, mean, var = state[f"{conv}.weight"], state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
        y = F.conv2d(y, weight, stride=stride, padding=weight.shape[-1] // 2)
        return F.batch_norm(y, mean, var, state[f"{norm}.weight"], state[f"{norm}.bias"])

    y, width = F.relu(layer(x, "stem", "norm")), len(state["stem.weight"])
    index = 0
    while f"blocks.{index}.conv1.weight" in state:
        name, strided = f"blocks.{index}", 2 if f"blocks.{index}.conv3.weight" in state else 1
        stride = len(state[f"{name}.conv1.weight"]) // width  # each stage has twice the channels
        width, branch = len(state[f"{name}.conv1.weight"]), y
        for number in range(1, strided + 2):
            branch = F.relu(branch) if number > 1 else branch
            branch = layer(branch, f"{name}.conv{number}", f"{name}.norm{number}", stride if number == strided else 1)
        if f"{name}.shortcut.0.weight" in state:
            y = layer(y, f"{name}.shortcut.0", f"{name}.shortcut.1", stride)
        y, index = F.relu(branch * (1 - drop) + y), index + 1
    head = state["head.weight"].flatten(1)
    return F.linear(F.adaptive_avg_pool2d(y, 1).flatten(1), head, state.get("head.bias"))


@every
def test_forward(name: str):
    torch.manual_seed(0)
    network, x = made(name), torch.randn(4, 3, 16, 16)
    network(x)  # statistics that are not 0 and 1
    state = network.eval().state_dict()
    with torch.no_grad():
        found, expected = network(x), reference(state, x)
    assert_close(found, expected, rtol=1e-3, atol=1e-3)
    seen: list[Tensor] = []
    network.head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    network(x)
    widths, _, expansion = BLOCKS[name]
    assert seen[0].flatten(1).shape == (4, expansion * widths[-1])  # the features


@pytest.mark.parametrize("depth", [2, 7, 21])
def test_depths_that_there_are_not(depth: int):
    with pytest.raises(ValueError, match=rf"depth={depth}: expected 6n \+ 2 layers"):
        CResNet(depth)


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
    CResNet20().load_state_dict(network.state_dict(), strict=True)  # it has no part in the state


def check_first_weights(network: nn.Module) -> None:
    """Assert that convolutions are Kaiming-normal and without bias, and norms the identity."""
    for name, part in network.named_modules():
        if isinstance(part, nn.Conv2d):
            assert part.bias is None
            weight = part.weight.detach()
            count, fan_in = weight.numel(), weight[0].numel()
            standard = weight.double() * math.sqrt(fan_in / 2)  # numbers of a standard normal distribution
            assert abs(standard.mean()) < 5 / math.sqrt(count), name
            assert abs(standard.var() - 1) < 5 * math.sqrt(2 / count), name
            assert abs((standard**4).mean() - 3) < 5 * math.sqrt(96 / count), name  # a uniform one would have 1.8
        elif isinstance(part, nn.BatchNorm2d):
            assert torch.equal(part.weight, torch.ones_like(part.weight)), name
            assert torch.equal(part.bias, torch.zeros_like(part.bias)), name


def test_layers_of_a_family():
    """Layerwise means every convolution, every batch norm, and the head, which is a convolution here."""
    with torch.device("meta"):
        norms = len([part for part in CResNet20().modules() if isinstance(part, nn.BatchNorm2d)])
    assert len(ss.Subspace(CResNet20, ss.Line(), layerwise=True).layers) == 22 + norms


def test_every_vertex_has_first_weights():
    torch.manual_seed(2)
    family = ss.Subspace(CResNet20, ss.Line())
    for alpha in (0.0, 1.0):
        check_first_weights(family.at(alpha))
    assert family.distances().cos2[0, 1] < 1e-3  # independent ones
