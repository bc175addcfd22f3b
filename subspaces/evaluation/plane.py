"""The plane through three networks, the coordinates in it, and metrics on a grid of it.

The first network is the origin, the x axis goes to the second, and the y axis is at a right angle to it towards the
third (Gram and Schmidt, by a QR decomposition). A point of the plane is an affine combination of the three, so its
weights are mixed like those of a simplex, off its domain too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from subspaces.core import geometry
from subspaces.core.family import Subspace
from subspaces.core.layout import Layout
from subspaces.core.shapes import Shape
from subspaces.errors import ArgumentError
from subspaces.evaluation.points import barycentric, coefficients, kind, middle_of
from subspaces.evaluation.rows import SPLIT, Corner, Drawn, Grid, Plane
from subspaces.evaluation.subject import Subject

MARGIN = 0.2  # of the extent of the three networks, on every side


@dataclass(frozen=True)
class Network:
    """A network of a plane: one of a subject's family, by its coefficients, or a module of the same architecture."""

    label: str
    subject: Subject | None = None
    coefficients: tuple[float, ...] = ()
    module: nn.Module | None = None

    def rows(self, layout: Layout) -> dict[str, Tensor]:
        """Return the weights by group, [n] each."""
        named: dict[str, Tensor] = {}
        if self.module is not None:
            named = dict(self.module.named_parameters(remove_duplicate=False))
            same = named.keys() >= layout.entries.keys()
        elif self.subject is not None:
            family, c = self.subject.family, torch.tensor(self.coefficients, dtype=torch.float64)
            named = family.theta(dict.fromkeys(family.omega, c.to(family.device)))
            same = family.layout == layout
        if not same:
            what = next((f"no {name}" for name in layout.entries if name not in named), "another network")
            raise ArgumentError(f"{self.label} has {what}: a plane goes through networks of one architecture")
        return {group.name: group.pack(named) for group in layout.groups}

    @classmethod
    def at_middle(cls, subject: Subject, label: str) -> "Network":
        """Return the network in the middle of a family."""
        return cls(label, subject, tuple(coefficients(subject.shape, middle_of(subject.shape))))


def corners(subject: Subject, others: Sequence[Network]) -> list[Network]:
    """Return the three networks of a subject's plane: as many of its own as are needed, before the others.

    Its own are the first three vertices; the first and the last beside one other; or the midpoint beside two.
    """
    m, shape = subject.shape.vertices, subject.shape
    for other in (each.subject for each in others if each.subject is not None):
        for what, ours in subject.common.items():
            if (theirs := other.common.get(what)) != ours:
                raise ArgumentError(
                    f"{subject.folder} has the {what} {ours!r} and {other.folder} {theirs!r}: "
                    f"a plane goes through networks of one {what}"
                )
    if len(others) > 1:
        middle = Network.at_middle(subject, "network" if kind(shape) == "single" else "midpoint")
        return [middle, *others] if len(others) == 2 else list(others)
    if m + len(others) < 3:
        raise ArgumentError(
            f"{subject.name} has {m} of the three networks that a plane goes through: name "
            f"{3 - m if m > 1 else 'two'} of other runs, --plane-through RUN"
        )
    names = vertex_names(shape)
    chosen = [0, m - 1] if others else [0, 1, 2]
    own = [Network(names[index], subject, tuple(float(index == each) for each in range(m))) for index in chosen]
    return [*own, *others]


def vertex_names(shape: Shape) -> list[str]:
    """Return what to call each vertex."""
    m = shape.vertices
    if kind(shape) == "simplex":
        return [f"vertex {index + 1}" for index in range(m)]
    bends = ["bend"] if m == 3 else [f"bend {index + 1}" for index in range(m - 2)]
    return ["network"] if m == 1 else ["α = 0", *bends, "α = 1"]


def outline(shape: Shape) -> list[list[float]] | None:
    """Return coefficients along what one would draw of a subspace: the path, or the triangle's edge; else None."""
    if kind(shape) == "interval":
        return [coefficients(shape, step / 40) for step in range(41)]
    if kind(shape) == "simplex" and shape.vertices == 3:
        return [list(barycentric([index], 3)) for index in (0, 1, 2, 0)]
    return None


class Span:
    """The plane through three networks of a subject's architecture, and the coordinates in it."""

    def __init__(self, subject: Subject, networks: Sequence[Network]) -> None:
        self.subject, self.networks, self.groups = subject, networks, subject.family.layout.groups
        with torch.no_grad():
            found = [network.rows(subject.family.layout) for network in networks]
            device = found[0][self.groups[0].name].device
            self.omega = {  # each [3, n]
                group.name: torch.stack([rows[group.name].to(device) for rows in found]) for group in self.groups
            }
        rows = _joined(self.omega[group.name] for group in self.groups)
        self.origin = rows[0]
        axes, places = torch.linalg.qr((rows[1:] - rows[0]).T)
        signs = places.diagonal().sign()  # the second is to the right of the first, the third above both
        self.axes = (axes * signs).T  # [2, n]
        self.corners = torch.cat([torch.zeros(1, 2), (places.T * signs)])  # [3, 2]
        width, height = float(self.corners[1, 0]), float(self.corners[2, 1])
        if not (width > 0 and height > 1e-5 * width):
            names = ", ".join(network.label for network in networks)
            raise ArgumentError(f"{names} lie on one line: a plane goes through three networks that do not")

    @torch.no_grad()
    def weights(self, at: Sequence[float]) -> dict[str, Tensor]:
        """Return the weights at x and y: with c that add up to 1 and lead there."""
        here = torch.tensor([1.0, *at], dtype=torch.float64)
        c = torch.linalg.solve(torch.cat([torch.ones_like(here)[None], self.corners.T]), here)
        found: dict[str, Tensor] = {}
        for group in self.groups:
            omega = self.omega[group.name]
            found |= group.unpack(geometry.mix(c.to(omega.device), omega))
        return found

    def plane(self, cells: int, count: int, statistics_images: int, metrics: Sequence[str]) -> Plane:
        """Return the plane with nothing measured yet."""
        low, high = self.corners.min(0).values, self.corners.max(0).values
        first, last = low - MARGIN * (high - low), high + MARGIN * (high - low)
        xs, ys = (
            torch.linspace(float(first[axis]), float(last[axis]), cells, dtype=torch.float64).tolist()
            for axis in (0, 1)
        )
        labels = [network.label for network in self.networks]
        places = [Corner(label, x, y) for label, (x, y) in zip(labels, self.corners.tolist(), strict=True)]
        values: dict[str, Grid] = {name: [[None] * cells for _ in ys] for name in metrics}
        return Plane(", ".join(labels), places, xs, ys, values, SPLIT, count, statistics_images, self._drawings())

    def _drawings(self) -> list[Drawn]:
        found = []
        owners = [network.subject for network in self.networks if network.subject is not None]
        for one in dict.fromkeys([self.subject, *owners]):
            single = kind(one.shape) == "single"
            if single and one in owners:
                continue
            if (path := outline(one.shape)) is not None:
                found.append(self._drawn(one.family, one.label, path))
            middle = coefficients(one.shape, middle_of(one.shape))
            found.append(self._drawn(one.family, one.label if single else f"{one.label} midpoint", [middle]))
        return found

    def _drawn(self, family: Subspace, label: str, points: Sequence[Sequence[float]]) -> Drawn:
        """Return where points of a family, given by coefficients, fall in the plane, and how far off it they lie.

        Both are linear in the vertices: it takes the coordinates of those, and the products of what is off.
        """
        steps = _joined(family.omega[group.name] for group in self.groups) - self.origin  # [m, n]
        places = steps @ self.axes.T
        off = steps - places @ self.axes
        c = torch.tensor([list(point) for point in points], dtype=torch.float64)
        x, y = (c @ places).T.tolist()
        distance = torch.einsum("ki,ij,kj->k", c, off @ off.T, c).clamp_min(0).sqrt()
        return Drawn(label, "path" if len(points) > 1 else "point", x, y, distance.tolist())


def _joined(groups: Iterable[Tensor]) -> Tensor:
    """Return the vertices, given in groups [m, n], as rows of all their weights in float64."""
    return torch.cat([rows.detach().cpu().double() for rows in groups], dim=1)


def begun(plane: Plane) -> bool:
    """Return whether any cell was measured."""
    return any(cell is not None for grid in plane.values.values() for line in grid for cell in line)
