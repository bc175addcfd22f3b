"""Plain networks, which know nothing of subspaces."""

from subspaces.networks.registry import build, head_name, names
from subspaces.networks.residual import CResNet, CResNet20, ResNet18, ResNet50
from subspaces.networks.small import MLP, LeNet

__all__ = ["MLP", "CResNet", "CResNet20", "LeNet", "ResNet18", "ResNet50", "build", "head_name", "names"]
