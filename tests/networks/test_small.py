"""The small networks take any small image."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from subspaces.networks import MLP, LeNet


def size(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


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
    assert size(network) == 61_706
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
