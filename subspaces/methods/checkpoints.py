"""The weights of a network at moments of its training, the family that they span, and the methods that keep them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from subspaces.methods.fields import POSITIVE, setting
from subspaces.methods.method import Hooks, M, Method
from subspaces.shapes import Shape, Simplex
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


class Collecting(Hooks[M]):
    """Keeps the weights after the method's checkpoints, which span the result."""

    def __init__(self, method: M, family: Subspace, epochs: int, seed: int) -> None:
        super().__init__(method, family, epochs, seed)
        self.moments = method.checkpoints(epochs)
        self.weights: dict[int, Rows] = {}  # by the epoch

    def after_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        if epoch in self.moments:
            self.weights[epoch] = rows(self.family)

    def networks(self) -> list[Rows]:
        """Return the vertices of the result."""
        missing = [epoch for epoch in self.moments if epoch not in self.weights]
        if missing:
            raise ValueError(f"the weights after epochs {missing} are not there: training has not come that far")
        return [self.weights[epoch] for epoch in self.moments]

    def result(self) -> Subspace:
        return spanned(self.family, self.networks(), self.method.result_shape(), self.seed)

    def kept(self) -> dict[str, Tensor]:
        return {f"{epoch}.{name}": row for epoch, kept in self.weights.items() for name, row in kept.items()}

    def load(self, kept: Mapping[str, Tensor]) -> None:
        self.weights = {}
        for key, row in kept.items():
            epoch, _, name = key.partition(".")
            self.weights.setdefault(int(epoch), {})[name] = row.to(self.family.device)


@dataclass(frozen=True)
class Collected(Method):
    """One network, of which several checkpoints are kept: the members of an ensemble."""

    answers: ClassVar[tuple[str, ...]] = ("vertices",)
    members = "members"
    hooks = Collecting
    vertices: int = setting(3, "Checkpoints of the network that are kept.", POSITIVE, label=lambda m: f" (m = {m})")

    def result_shape(self) -> Shape:
        if self.vertices < 2:
            raise ValueError(f"vertices={self.vertices}: {self.name} keeps two checkpoints or more")
        return Simplex(self.vertices)
