"""What has dropout, said once: for networks that are built with a rate, and for MC-dropout.

A module drops as a dropout layer, or by calling `F.dropout(x, rate, self.training)` itself. Nobody can see such a call
from outside, so a module that makes one has its rate as an attribute, `dropout` or `drop_rate`, as torch's attention
and the networks of timm have.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from subspaces.errors import ArgumentError

ATTRIBUTES = ("dropout", "drop_rate")


def rates(module: nn.Module) -> set[float]:
    """Return the rates above 0 at which a module itself drops, whatever its parts do."""
    if isinstance(module, _BatchNorm):
        return set()
    layer = isinstance(module, nn.modules.dropout._DropoutNd) or "Dropout" in type(module).__name__
    found = [getattr(module, name, None) for name in (("p",) if layer else ATTRIBUTES)]
    numbers = [rate for rate in found if isinstance(rate, int | float) and not isinstance(rate, bool)]
    return {float(rate) for rate in numbers if rate > 0}


def drops_at(network: nn.Module, rate: float) -> bool:
    """Say whether a part of a network drops at this rate."""
    return any(rate in rates(module) for module in network.modules())


@contextmanager
def dropping(network: nn.Module) -> Iterator[nn.Module]:
    """Put a network into eval mode but for its dropout, and leave it in eval mode."""
    network.eval()
    found = [module for module in network.modules() if rates(module)]
    if not found:
        raise ArgumentError(f"{type(network).__name__} has no dropout: train one with --dropout, or do not ask for it")
    for module in found:
        module.training = True  # of this module alone: batch norm below it stays as it is
    try:
        yield network
    finally:
        network.eval()
