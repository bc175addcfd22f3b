"""Plain networks, which know nothing of subspaces."""

from subspaces.networks.cresnet import CResNet20

__all__ = ["CResNet20"]
