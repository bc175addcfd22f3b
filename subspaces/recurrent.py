"""Recurrent parts of a network, which keep a list of their weights beside the weights themselves."""

import weakref

from torch import nn


def recurrent(network: nn.Module) -> list[nn.RNNBase]:
    """Return the recurrent parts of a network."""
    found, left = [], [network]
    while left:  # `network.modules()`, at a third of its time, which every call of a family pays
        part = left.pop()
        left += [child for child in part._modules.values() if child is not None]
        if isinstance(part, nn.RNNBase):
            found.append(part)
    return found


def forget(parts: list[nn.RNNBase]) -> None:
    """Make recurrent parts drop their list of weights and read the next ones."""
    for part in parts:
        count = len(part._flat_weights_names)
        part._flat_weights = [None] * count
        part._flat_weight_refs = [weakref.ref(nn.Parameter())] * count  # none of them is there any more
