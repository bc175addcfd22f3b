"""Plain networks, which know nothing of subspaces."""

from subspaces.networks.models import MLP, CResNet, CResNet20, LeNet, ResNet18, ResNet50
from subspaces.networks.registry import build, head_name, names

__all__ = ["MLP", "CResNet", "CResNet20", "LeNet", "ResNet18", "ResNet50", "build", "head_name", "names"]
