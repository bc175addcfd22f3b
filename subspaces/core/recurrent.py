"""Recurrent parts of a network, which keep a list of their weights beside the weights themselves."""

import weakref

from torch import nn


def recurrent(network: nn.Module) -> list[nn.RNNBase]:
    """Return the recurrent parts of a network."""
    left: list[nn.Module | None] = [network]
    seen: set[nn.Module | None] = {None}
    while left:  # as `network.modules()` does, in half of its time, which every call of a family takes
        part = left.pop()
        if part is not None and part not in seen:
            seen.add(part)
            left += part._modules.values()
    return [part for part in seen if isinstance(part, nn.RNNBase)]


def forget(parts: list[nn.RNNBase]) -> None:
    """Make recurrent parts drop their list of weights and read the next ones."""
    for part in parts:
        count = len(part._flat_weights_names)
        part._flat_weights = [None] * count
        part._flat_weight_refs = [weakref.ref(nn.Parameter())] * count  # none of them is there any more
