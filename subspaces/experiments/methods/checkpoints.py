"""Methods that keep checkpoints of one network, and the family that these span.

Their average is a network (SWA, Izmailov et al., 2018), an ensemble can be drawn from a Gaussian that is fitted to them
(SWA-Gaussian, Maddox et al., 2019), and at the ends of the cycles of a learning rate they are one themselves: long
cycles for snapshot ensembles (Huang et al., 2017), short ones for fast geometric ones (Garipov et al., 2018).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from subspaces.core import distributed
from subspaces.core.family import Subspace
from subspaces.core.shapes import Line, Shape, Simplex
from subspaces.errors import ArgumentError
from subspaces.experiments.methods.fields import POSITIVE, setting
from subspaces.experiments.methods.method import METHODS, Hooks, M, Method
from subspaces.experiments.methods.rates import cosine, cycle, short, warmup_cosine

AVERAGED_FROM, AVERAGED_AT = 0.75, 0.5  # SWA: of the epochs, and of the peak of the learning rate
TRIANGLES_FROM = 0.8  # FGE: of the epochs
TRIANGLES_AT = (0.5, 0.005)  # of the peak: where a short cycle begins and where a member is taken
Rows = dict[str, Tensor]  # the weights of one network: a row [n] for each group of parameters


def rows(family: Subspace, vertex: int = 0) -> Rows:
    """Return a copy of the weights of a vertex."""
    return {name: distributed.row(omega, vertex).clone() for name, omega in family.omega.items()}


@torch.no_grad()
def spanned(family: Subspace, networks: Sequence[Rows], shape: Shape, seed: int = 0) -> Subspace:
    """Return a new family of that shape whose vertices are these weights of the family's network."""
    result = Subspace(family.midpoint(), shape, init="point", offset=0.0, seed=seed)
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
            raise ArgumentError(f"vertices={self.vertices}: {self.name} keeps two checkpoints or more")
        return Simplex(self.vertices)


@dataclass(frozen=True)
class Averaged(Collected):
    """One network, the average of its checkpoints; they also answer together."""

    answers: ClassVar[tuple[str, ...]] = ("midpoint", "vertices")
    members = "checkpoints"

    def result_shape(self) -> Shape:
        shape = super().result_shape()
        return Line() if shape.vertices == 2 else shape

    def checkpoints(self, epochs: int) -> list[int]:
        """Return when the m checkpoints are taken: the first at three quarters, the last at the end."""
        start, gaps = round(AVERAGED_FROM * epochs), self.vertices - 1
        if epochs - start < gaps:
            raise ArgumentError(
                f"{self.vertices} checkpoints in {epochs} epochs, of which the last {epochs - start} are theirs: "
                "expected an epoch between any two of them"
            )
        return [start + (epochs - start) * i // gaps for i in range(self.vertices)]


@METHODS.add
@dataclass(frozen=True)
class SwaCyclic(Averaged):
    """SWA with a cyclic learning rate."""

    name = "swa-cyclic"
    meaning = "the average of checkpoints, after cycles of the learning rate"
    schedule = "swa-cyclic"

    def rate(self, epoch: int, epochs: int, peak: float) -> float:
        """Cosine to nearly 0 at three quarters, then m - 1 of them from half the peak."""
        ends = self.checkpoints(epochs)
        if epoch < ends[0]:
            return warmup_cosine(epoch, ends[0], peak, short(ends[0]))
        start, end = cycle(epoch, ends)
        return AVERAGED_AT * peak * cosine((epoch - start) / (end - start))


@METHODS.add
@dataclass(frozen=True)
class SwaConstant(Averaged):
    """SWA with a constant learning rate."""

    name = "swa-constant"
    meaning = "the average of checkpoints, at a high learning rate"
    schedule = "swa-constant"

    def rate(self, epoch: int, epochs: int, peak: float) -> float:
        """Rise to the peak, stay for half of the training, move in a line to half the peak at three quarters, stay."""
        start, turn, first = 0.5 * epochs, AVERAGED_FROM * epochs, round(AVERAGED_FROM * epochs)
        warmup = short(first)
        if epoch < warmup:
            return peak * (epoch + 1) / warmup
        if epoch >= first:
            return AVERAGED_AT * peak
        share = min(1.0, max(0.0, (epoch - start) / (turn - start)))
        return peak * (1 - share * (1 - AVERAGED_AT))


def moments(checkpoints: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean [n], variance [n] and deviations D [n, K] of checkpoints [K, n], in float64.

    The variance is E[theta²] - E[theta]², which rounding can make negative, and is clamped at 0.
    """
    values = checkpoints.double()
    mean = values.mean(0)
    variance = (values.square().mean(0) - mean.square()).clamp(min=0)
    return mean, variance, (values - mean).T


def draw(checkpoints: Sequence[Rows], count: int, seed: int) -> list[Rows]:
    """Return samples mean + sigma z_1 / √2 + D z_2 / √(2 (K - 1)), with z normal and fixed by the seed.

    z_2 is one vector of K numbers for all weights of a sample. The numbers are the same on every device and in any
    order of the groups.
    """
    k = len(checkpoints)
    generator = torch.Generator().manual_seed(seed)
    fitted = {name: moments(torch.stack([one[name] for one in checkpoints]).cpu()) for name in sorted(checkpoints[0])}
    samples: list[Rows] = []
    for _ in range(count):
        shared = torch.randn(k, generator=generator, dtype=torch.float64)
        sample: Rows = {}
        for name, (mean, variance, deviations) in fitted.items():
            own = torch.randn(len(mean), generator=generator, dtype=torch.float64)
            value = mean + variance.sqrt() * own / math.sqrt(2) + deviations @ shared / math.sqrt(2 * (k - 1))
            sample[name] = value.to(checkpoints[0][name])
        samples.append(sample)
    return samples


class Drawing(Collecting["Swag"]):
    """Draws the vertices of the result from the Gaussian."""

    def networks(self) -> list[Rows]:
        return draw(super().networks(), self.method.vertices, self.seed)


@METHODS.add
@dataclass(frozen=True)
class Swag(SwaCyclic):
    """SWA-Gaussian, an ensemble that is drawn from the checkpoints of cyclic SWA."""

    name = "swag"
    meaning = "an ensemble drawn around the average of swa-cyclic"
    answers = ("vertices",)
    members = "members"
    hooks = Drawing

    def result_shape(self) -> Shape:
        return Collected.result_shape(self)


@METHODS.add
@dataclass(frozen=True)
class Snapshot(Collected):
    """An ensemble of the ends of cycles."""

    name = "snapshot"
    meaning = "an ensemble of checkpoints, a long cycle of the learning rate apart"
    schedule = "snapshot"

    def rate(self, epoch: int, epochs: int, peak: float) -> float:
        """Fall from the peak to nearly 0 in each of m equal parts."""
        start, end = cycle(epoch, self.checkpoints(epochs))
        return peak * cosine((epoch - start) / (end - start))

    def checkpoints(self, epochs: int) -> list[int]:
        if self.vertices > epochs:
            raise ArgumentError(f"{self.vertices} cycles in {epochs} epochs: expected an epoch for each")
        return [epochs * (i + 1) // self.vertices for i in range(self.vertices)]


@METHODS.add
@dataclass(frozen=True)
class Fge(Collected):
    """An ensemble of the low points."""

    name = "fge"
    meaning = "an ensemble of checkpoints, a short cycle apart"
    schedule = "fge"

    def rate(self, epoch: int, epochs: int, peak: float) -> float:
        """Cosine to nearly 0 at four fifths, then triangles: down to a low point, where a member is taken, and up."""
        turns = self.turns(epochs)
        if epoch < turns[0]:
            return warmup_cosine(epoch, turns[0], peak, short(turns[0]))
        start, end = cycle(epoch, turns)
        share = (epoch + 1 - start) / (end - start)
        falling = turns.index(start) % 2 == 0
        high, low = TRIANGLES_AT
        return peak * (high + (low - high) * (share if falling else 1 - share))

    def checkpoints(self, epochs: int) -> list[int]:
        return self.turns(epochs)[1::2]

    def turns(self, epochs: int) -> list[int]:
        """Return where the rate turns: the start, a low point, a high point, …, the last low point."""
        start, sides = round(TRIANGLES_FROM * epochs), 2 * self.vertices - 1
        if epochs - start < sides:
            raise ArgumentError(
                f"{self.vertices} members in the last {epochs - start} of {epochs} epochs: expected an epoch for each "
                f"side of their triangles, {sides} in all"
            )
        return [start + (epochs - start) * i // sides for i in range(sides + 1)]
