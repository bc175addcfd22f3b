"""The weights of a network at moments of its training, and the family that they span."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from subspaces.shapes import Shape
from subspaces.subspace import Subspace

Rows = dict[str, Tensor]
"""The weights of one network: a row [n] for each group of parameters."""


def rows(family: Subspace, vertex: int = 0) -> Rows:
    """Return a copy of the weights of a vertex."""
    return {name: omega.detach()[vertex].clone() for name, omega in family.omega.items()}


@torch.no_grad()
def spanned(family: Subspace, networks: Sequence[Rows], shape: Shape, seed: int = 0) -> Subspace:
    """Return a new family of that shape whose vertices are these weights of the family's network."""
    if len(networks) != shape.vertices:
        raise ValueError(f"{len(networks)} networks cannot span {shape}: it has {shape.vertices} vertices")
    result = Subspace(family.midpoint(), shape, init="point", seed=seed)
    for index, network in enumerate(networks):
        places = result.vertex(index)
        for group in family.layout.groups:
            for name, value in group.unpack(network[group.name]).items():
                places[name].copy_(value)
    return result


class Checkpoints:
    """The weights after chosen epochs.

    Args:
        epochs: after how many epochs weights are kept.
    """

    def __init__(self, epochs: Sequence[int]) -> None:
        self.epochs = tuple(epochs)
        self.kept: dict[int, Rows] = {}

    def offer(self, epoch: int, family: Subspace) -> None:
        """Keep the weights if this is one of the epochs."""
        if epoch in self.epochs:
            self.kept[epoch] = rows(family)

    def networks(self) -> list[Rows]:
        """Return the weights of all epochs, in their order."""
        missing = [epoch for epoch in self.epochs if epoch not in self.kept]
        if missing:
            raise ValueError(f"the weights after epochs {missing} are not there: training has not come that far")
        return [self.kept[epoch] for epoch in self.epochs]

    def state(self) -> dict[str, Tensor]:
        """Return what is kept so far, by name."""
        return {f"{epoch}.{name}": row for epoch, kept in self.kept.items() for name, row in kept.items()}

    def load(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Continue with what `state()` returned earlier."""
        self.kept = {}
        for key, row in state.items():
            epoch, _, name = key.partition(".")
            self.kept.setdefault(int(epoch), {})[name] = row.to(device)
