"""Plain networks, which know nothing of subspaces.

Example:
    >>> make_net = partial(ss.networks.build, "cresnet20", classes=10, image_shape=(3, 32, 32))
    >>> family = ss.Subspace(make_net, ss.Line())
    >>> "mlp" in ss.networks.names(), ss.networks.head_name(make_net())
    (True, ...)
"""

from subspaces.networks.models import MLP, CResNet, CResNet20, LeNet, ResNet18, ResNet50
from subspaces.networks.registry import build, head_name, names

__all__ = ["MLP", "CResNet", "CResNet20", "LeNet", "ResNet18", "ResNet50", "build", "head_name", "names"]
