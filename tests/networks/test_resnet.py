"""The TinyImageNet networks have the size, the parts and the first weights that they should have."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import subspaces as ss
from subspaces.networks import ResNet18, ResNet50
from subspaces.networks.resnet import Bottleneck

DEPTHS = {ResNet18: (2, 2, 2, 2), ResNet50: (3, 4, 6, 3)}
EXPANSION = {ResNet18: 1, ResNet50: 4}
both = pytest.mark.parametrize("kind", [ResNet18, ResNet50])


def expected_size(kind: type[nn.Module], classes: int) -> int:
    """Count the parameters from the description of the network alone."""

    def conv(inputs: int, outputs: int, side: int) -> int:
        return side**2 * inputs * outputs + 2 * outputs  # with the scale and shift of its norm

    total = conv(3, 64, 3)
    inputs = 64
    for stage, depth in enumerate(DEPTHS[kind]):
        width = 64 * 2**stage
        outputs = width * EXPANSION[kind]
        for position in range(depth):
            if kind is ResNet18:
                total += conv(inputs, width, 3) + conv(width, width, 3)
            else:
                total += conv(inputs, width, 1) + conv(width, width, 3) + conv(width, outputs, 1)
            if position == 0 and inputs != outputs:
                total += conv(inputs, outputs, 1)
            inputs = outputs
    return total + inputs * classes + classes


@both
@pytest.mark.parametrize("classes", [200, 7])
def test_size(kind: type[nn.Module], classes: int):
    with torch.device("meta"):
        network = kind(classes)
    assert sum(parameter.numel() for parameter in network.parameters()) == expected_size(kind, classes)


def test_size_in_numbers():
    assert expected_size(ResNet18, 200) == 11_271_432
    assert expected_size(ResNet50, 200) == 23_910_152
    with torch.device("meta"):
        assert ResNet18().head.out_features == ResNet50().head.out_features == 200


@both
def test_shapes(kind: type[nn.Module]):
    with torch.device("meta"):
        network = kind(5).eval()
        shapes = []
        for block in network.blocks:
            block.register_forward_hook(lambda _, __, output: shapes.append(tuple(output.shape[1:])))
        assert network(torch.empty(2, 3, 64, 64)).shape == (2, 5)
    expected = [(64, 64), (128, 32), (256, 16), (512, 8)]
    stages = zip(expected, DEPTHS[kind], strict=True)
    assert shapes == [(EXPANSION[kind] * width, side, side) for (width, side), depth in stages for _ in range(depth)]


@both
def test_shortcuts_are_convolutions_where_shapes_change(kind: type[nn.Module]):
    with torch.device("meta"):
        network = kind()
    firsts = [sum(DEPTHS[kind][:stage]) for stage in range(4)]
    for index, block in enumerate(network.blocks):
        if index in firsts[1:] or (index == 0 and kind is ResNet50):
            conv, norm = block.shortcut
            stride = (1, 1) if index == 0 else (2, 2)
            assert (conv.kernel_size, conv.stride, conv.bias) == ((1, 1), stride, None)
            assert isinstance(norm, nn.BatchNorm2d)
        else:
            assert len(block.shortcut) == 0


@pytest.fixture(scope="module")
def network() -> ResNet18:
    torch.manual_seed(0)
    return ResNet18(11)


def check_first_weights(network: nn.Module) -> None:
    """Assert that convolutions are Kaiming-normal and norms the identity."""
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


@both
def test_first_weights(kind: type[nn.Module]):
    torch.manual_seed(1)
    check_first_weights(kind())


def norm(y: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    return F.batch_norm(y, mean, var, state[f"{name}.weight"], state[f"{name}.bias"])


def reference18(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """Run ResNet18 from its weights alone, in eval mode."""
    y = F.relu(norm(F.conv2d(x, state["stem.weight"], padding=1), state, "norm"))
    for index in range(8):
        name = f"blocks.{index}"
        stride = 2 if index in (2, 4, 6) else 1
        branch = F.conv2d(y, state[f"{name}.conv1.weight"], stride=stride, padding=1)
        branch = F.relu(norm(branch, state, f"{name}.norm1"))
        branch = norm(F.conv2d(branch, state[f"{name}.conv2.weight"], padding=1), state, f"{name}.norm2")
        if stride == 2:
            y = norm(F.conv2d(y, state[f"{name}.shortcut.0.weight"], stride=2), state, f"{name}.shortcut.1")
        y = F.relu(branch + y)
    return F.linear(F.adaptive_avg_pool2d(y, 1).flatten(1), state["head.weight"], state["head.bias"])


def test_forward(network: ResNet18):
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    network.train()(x)  # statistics that are not 0 and 1
    assert_close(network.eval()(x), reference18(network.state_dict(), x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("stride", [1, 2])
def test_bottleneck(stride: int):
    torch.manual_seed(0)
    block = Bottleneck(6, 3, stride)
    x = torch.randn(4, 6, 8, 8)
    block(x)
    state = block.eval().state_dict()
    y = F.relu(norm(F.conv2d(x, state["conv1.weight"]), state, "norm1"))
    y = F.relu(norm(F.conv2d(y, state["conv2.weight"], stride=stride, padding=1), state, "norm2"))
    y = norm(F.conv2d(y, state["conv3.weight"]), state, "norm3")
    shortcut = norm(F.conv2d(x, state["shortcut.0.weight"], stride=stride), state, "shortcut.1")
    assert_close(block(x), F.relu(y + shortcut))


def test_the_input_of_the_head_are_the_features(network: ResNet18):
    seen: list[Tensor] = []
    handle = network.head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    network.eval()(torch.randn(3, 3, 16, 16))
    handle.remove()
    assert seen[0].shape == (3, 512)


@both
def test_layers_of_a_family(kind: type[nn.Module]):
    """Layerwise means every convolution, every batch norm, and the head."""
    family = ss.Subspace(kind, ss.Line(), layerwise=True)
    convolutions = {ResNet18: 20, ResNet50: 53}[kind]
    assert len(family.layers) == 2 * convolutions + 1


def test_every_vertex_has_first_weights():
    torch.manual_seed(2)
    family = ss.Subspace(ResNet18, ss.Line())
    for alpha in (0.0, 1.0):
        check_first_weights(family.at(alpha))
    assert family.distances().cos2[0, 1] < 1e-3  # independent ones
