"""The plane through three networks, and the coordinates in it.

The first network is the origin, the x axis goes to the second, and the y axis is at a right angle to it
towards the third (Gram and Schmidt). A point of the plane is an affine combination of the three, so its
weights are mixed like those of a simplex, off its domain too.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from subspaces import geometry
from subspaces.evaluation.through import Network
from subspaces.subspace import Subspace


class Span:
    """The plane through three networks of one architecture, and the coordinates in it."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self.networks = list(networks)
        self.layout = networks[0].family.layout
        for network in networks[1:]:
            if network.family.layout != self.layout:
                raise ValueError(f"{network.bench.run.folder} has another network than {networks[0].bench.run.folder}")
        with torch.no_grad():
            self.omega = {  # each [3, n]
                group.name: torch.stack([_weights(network, group.name) for network in networks])
                for group in self.layout.groups
            }
        rows = _joined(self.omega[group.name] for group in self.layout.groups)
        self.origin = rows[0]
        self.axes = _gram_schmidt(*(rows[1:] - rows[0]))  # [2, n]
        self.corners = self.coordinates(rows)[0]  # [3, 2]
        self.corners[1, 1] = 0.0  # but for rounding
        width, height = float(self.corners[1, 0]), float(self.corners[2, 1])
        if not (width > 0 and height > 1e-5 * width):
            names = ", ".join(network.label for network in networks)
            raise ValueError(f"{names} lie on one line: a plane goes through three networks that do not")

    def coordinates(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return x and y of networks, float64 [k, n] -> [k, 2], and what of each is off the plane, [k, n]."""
        steps = rows - self.origin
        places = steps @ self.axes.T
        return places, steps - places @ self.axes

    def mixture(self, x: float, y: float) -> list[float]:
        """Return the coefficients of the three networks at a point of the plane."""
        (_, _), (x1, _), (x2, y2) = self.corners.tolist()
        third = y / y2
        second = (x - third * x2) / x1
        return [1 - second - third, second, third]

    @torch.no_grad()
    def weights(self, x: float, y: float) -> dict[str, Tensor]:
        """Return the weights at a point of the plane."""
        c = torch.tensor(self.mixture(x, y), dtype=torch.float64)
        found: dict[str, Tensor] = {}
        for group in self.layout.groups:
            omega = self.omega[group.name]
            found |= group.unpack(geometry.mix(c.to(omega.device), omega))
        return found

    def projected(self, family: Subspace, rows: Sequence[Sequence[float]]) -> tuple[Tensor, Tensor]:
        """Return where points of a family, given by coefficients [k, m], fall in the plane, and how far off they lie.

        Both are linear in the vertices: it takes the coordinates of those, and the products of what is off.
        """
        places, off = self.coordinates(_joined(family.omega[group.name] for group in self.layout.groups))
        c = torch.tensor([list(row) for row in rows], dtype=torch.float64)
        squares = torch.einsum("ki,ij,kj->k", c, off @ off.T, c)
        return c @ places, squares.clamp_min(0).sqrt()


def _weights(network: Network, group: str) -> Tensor:
    """Return the weights of a network in one group, [n]."""
    omega = network.family.omega[group]
    return geometry.mix(torch.tensor(network.coefficients, dtype=torch.float64, device=omega.device), omega)


def _gram_schmidt(first: Tensor, second: Tensor) -> Tensor:
    """Return two vectors of length 1 at a right angle: along the first, and towards the second."""
    x = first / first.norm()
    y = second - (second @ x) * x
    y = y - (y @ x) * x  # once more: the first time leaves the rounding of a large part
    return torch.stack([x, y / y.norm()])


def _joined(groups: Iterable[Tensor]) -> Tensor:
    """Return the vertices, given in groups [m, n], as rows of all their weights in float64."""
    return torch.cat([rows.detach().cpu().double() for rows in groups], dim=1)
