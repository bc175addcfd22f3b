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
from subspaces.errors import ArgumentError
from subspaces.evaluation.answers import middle_of
from subspaces.evaluation.points import coefficients, kind, outline, vertex_names
from subspaces.evaluation.rows import Corner, Drawn, Plane
from subspaces.evaluation.subject import Subject

MARGIN = 0.2  # of the extent of the three networks, on every side
SPLIT = "test"


@dataclass(frozen=True)
class Network:
    """A network of a plane: one of a subject's family, by its coefficients, or a module of the same architecture."""

    label: str
    subject: Subject | None = None
    coefficients: tuple[float, ...] = ()
    module: nn.Module | None = None

    def rows(self, layout: Layout) -> dict[str, Tensor]:
        """Return the weights by group, [n] each."""
        if self.subject is not None:
            family = self.subject.family
            same, c = family.layout == layout, torch.tensor(self.coefficients, dtype=torch.float64)
            named = family.theta(dict.fromkeys(family.omega, c.to(family.device)))
        else:
            named = dict(self.module.named_parameters(remove_duplicate=False)) if self.module is not None else {}
            same = named.keys() >= layout.entries.keys()
        if not same:
            what = next((f"no {name}" for name in layout.entries if name not in named), "another network")
            raise ArgumentError(f"{self.label} has {what}: a plane goes through networks of one architecture")
        return {group.name: group.pack(named) for group in layout.groups}

    @classmethod
    def at_middle(cls, subject: Subject, label: str) -> "Network":
        """Return the network in the middle of a family."""
        return cls(label, subject, tuple(coefficients(subject.shape, middle_of(subject.shape))))


def corners(subject: Subject, others: Sequence[Network]) -> list[Network]:
    """Return the three networks of a subject's plane: its own, as many as are needed, before the others.

    Without others these are its first three vertices; with one other its first and last, with two its midpoint.
    """
    m, shape = subject.shape.vertices, subject.shape
    for other in others:
        if other.subject is not None:
            subject.check_alike(other.subject)
    chosen = {0: [0, 1, 2], 1: [0, m - 1]}.get(len(others), [])
    if len(set(chosen)) < len(chosen) or max(chosen, default=0) >= m:
        raise ArgumentError(
            f"{subject.name} has {m} of the three networks that a plane goes through: name "
            f"{3 - m if m > 1 else 'two'} of other runs, --plane-through RUN"
        )
    names = vertex_names(shape)
    own = [Network(names[index], subject, tuple(float(index == each) for each in range(m))) for index in chosen]
    if len(others) == 2:
        own = [Network.at_middle(subject, "network" if kind(shape) == "single" else "midpoint")]
    return [*own, *others]


class Span:
    """The plane through three networks of a subject's architecture, and the coordinates in it."""

    def __init__(self, subject: Subject, networks: Sequence[Network]) -> None:
        self.subject, self.networks, self.layout = subject, networks, subject.family.layout
        with torch.no_grad():
            found = [network.rows(self.layout) for network in networks]
            device = found[0][self.layout.groups[0].name].device
            self.omega = {  # each [3, n]
                group.name: torch.stack([rows[group.name].to(device) for rows in found]) for group in self.layout.groups
            }
        rows = _joined(self.omega[group.name] for group in self.layout.groups)
        self.origin = rows[0]
        axes, places = torch.linalg.qr((rows[1:] - rows[0]).T)
        signs = places.diagonal().sign()  # the second is to the right of the first, the third above both
        self.axes = (axes * signs).T  # [2, n]
        self.corners = torch.cat([torch.zeros(1, 2), (places.T * signs)])  # [3, 2]
        width, height = float(self.corners[1, 0]), float(self.corners[2, 1])
        if not (width > 0 and height > 1e-5 * width):
            names = ", ".join(network.label for network in networks)
            raise ArgumentError(f"{names} lie on one line: a plane goes through three networks that do not")

    def coordinates(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return x and y of networks, float64 [k, n] -> [k, 2], and what of each is off the plane, [k, n]."""
        steps = rows - self.origin
        places = steps @ self.axes.T
        return places, steps - places @ self.axes

    @torch.no_grad()
    def weights(self, x: float, y: float) -> dict[str, Tensor]:
        """Return the weights at a point of the plane: with c that add up to 1 and lead there."""
        here = torch.tensor([1.0, x, y], dtype=torch.float64)
        c = torch.linalg.solve(torch.cat([torch.ones_like(here)[None], self.corners.T]), here)
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

    def plane(self, cells: int, count: int, statistics_images: int, metrics: Sequence[str]) -> Plane:
        """Return the plane with nothing measured yet."""
        low, high = self.corners.min(0).values, self.corners.max(0).values
        margin = MARGIN * (high - low)
        xs, ys = (
            torch.linspace(float(first), float(last), cells, dtype=torch.float64).tolist()
            for first, last in zip(low - margin, high + margin, strict=True)
        )
        labels = [network.label for network in self.networks]
        return Plane(
            name=", ".join(labels),
            corners=[Corner(label, x, y) for label, (x, y) in zip(labels, self.corners.tolist(), strict=True)],
            xs=xs,
            ys=ys,
            values={name: [[None] * cells for _ in ys] for name in metrics},
            split=SPLIT,
            count=count,
            statistics_images=statistics_images,
            drawn=self._drawings(),
        )

    def _drawings(self) -> list[Drawn]:
        """Return the subject's subspace and those that the three networks come from, in the plane's coordinates."""
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

    def _drawn(self, family: Subspace, label: str, rows: Sequence[Sequence[float]]) -> Drawn:
        places, distance = self.projected(family, rows)
        x, y = places.T.tolist()
        return Drawn(label, "path" if len(rows) > 1 else "point", x, y, distance.tolist())


def begun(plane: Plane) -> bool:
    """Say whether any cell was measured."""
    return any(cell is not None for grid in plane.values.values() for line in grid for cell in line)


def _joined(groups: Iterable[Tensor]) -> Tensor:
    """Return the vertices, given in groups [m, n], as rows of all their weights in float64."""
    return torch.cat([rows.detach().cpu().double() for rows in groups], dim=1)
