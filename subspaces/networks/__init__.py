"""Plain networks, which know nothing of subspaces."""

from subspaces.networks.cresnet import CResNet20
from subspaces.networks.registry import build, head_name, names
from subspaces.networks.resnet import ResNet18, ResNet50
from subspaces.networks.small import MLP, LeNet

__all__ = ["MLP", "CResNet20", "LeNet", "ResNet18", "ResNet50", "build", "head_name", "names"]
