"""Plain networks, which know nothing of subspaces."""

from subspaces.networks.cresnet import CResNet20
from subspaces.networks.small import MLP

__all__ = ["MLP", "CResNet20"]
