"""The networks of this package: their sizes, and what they compute."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from subspaces.networks import MLP, CResNet, CResNet20, LeNet, build

DEPTHS = (8, 14, 20, 32, 56)
BLOCKS = {  # widths, how many blocks in each stage, and the outputs of a block for each of its width
    **{f"cresnet{depth}": ((16, 32, 64), ((depth - 2) // 6,) * 3, 1) for depth in DEPTHS},
    "resnet18": ((64, 128, 256, 512), (2, 2, 2, 2), 1),
    "resnet50": ((64, 128, 256, 512), (3, 4, 6, 3), 4),
}
every = pytest.mark.parametrize("name", BLOCKS)


def made(name: str, classes: int = 7) -> Any:
    return build(name, classes=classes, image_shape=(3, 32, 32))


SIZES = {"cresnet8": 78_032, "cresnet14": 175_248, "cresnet20": 272_464, "cresnet32": 466_896, "cresnet56": 855_760}
SIZES |= {"resnet18": 11_173_962, "resnet50": 23_520_842}  # as in the public implementations for CIFAR-10


@every
def test_size(name: str):
    with torch.device("meta"):
        network = made(name, classes=10)
    assert sum(parameter.numel() for parameter in network.parameters()) == SIZES[name]
    for depth in DEPTHS:
        if name == f"cresnet{depth}":
            convolutions = [part for part in network.modules() if isinstance(part, nn.Conv2d)]
            assert len([conv for conv in convolutions if conv.kernel_size == (3, 3)]) == depth - 1


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


# Small networks


def test_mlp_forward():
    torch.manual_seed(0)
    network = MLP(inputs=12, classes=3, width=5)
    network(torch.randn(20, 3, 2, 2))  # statistics that are not 0 and 1
    state, x = network.eval().state_dict(), torch.randn(4, 3, 2, 2)
    y = x.flatten(1)
    for layer, norm in (("body.1", "body.2"), ("body.4", "body.5")):
        y = F.linear(y, state[f"{layer}.weight"], state[f"{layer}.bias"])
        mean, var = state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
        y = F.relu(F.batch_norm(y, mean, var, state[f"{norm}.weight"], state[f"{norm}.bias"]))
    assert_close(network(x), F.linear(y, state["head.weight"], state["head.bias"]))


def test_lenet_forward():
    torch.manual_seed(0)
    network = LeNet()  # the classic one
    assert sum(parameter.numel() for parameter in network.parameters()) == 61_706
    state = network.state_dict()
    x = torch.randn(3, 1, 28, 28)
    y = F.max_pool2d(F.relu(F.conv2d(x, state["body.0.weight"], state["body.0.bias"], padding=2)), 2)
    y = F.max_pool2d(F.relu(F.conv2d(y, state["body.3.weight"], state["body.3.bias"])), 2).flatten(1)
    assert y.shape == (3, 400)
    for name in ("body.7", "body.9"):
        y = F.relu(F.linear(y, state[f"{name}.weight"], state[f"{name}.bias"]))
    assert_close(network(x), F.linear(y, state["head.weight"], state["head.bias"]))


@pytest.mark.parametrize("image_shape", [(1, 8, 8), (1, 28, 28), (3, 64, 64), (1, 4, 4), (2, 27, 40)])
def test_lenet_takes_any_image(image_shape: tuple[int, int, int]):
    network = LeNet(image_shape, classes=4)
    assert network(torch.randn(2, *image_shape)).shape == (2, 4)
    assert network.head.in_features == 84


def test_lenet_refuses_what_pooling_would_leave_nothing_of():
    with pytest.raises(ValueError, match=r"image_shape=\(1, 3, 28\).*sides of 4 or more"):
        LeNet((1, 3, 28))
