"""Stochastic weight averaging, and the Gaussian around it.

Checkpoints late in training, whose midpoint is the network (SWA, Izmailov et al., 2018); an ensemble is drawn from the
Gaussian that is fitted to them (SWA-Gaussian, Maddox et al., 2019).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from subspaces.methods.checkpoints import Collected, Collecting, Rows
from subspaces.methods.method import METHODS
from subspaces.methods.rates import cosine, cycle, short, warmup_cosine
from subspaces.shapes import Line, Shape

START = 0.75
RATE = 0.5  # of the peak


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
        start, gaps = round(START * epochs), self.vertices - 1
        if epochs - start < gaps:
            raise ValueError(
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
        return RATE * peak * cosine((epoch - start) / (end - start))


@METHODS.add
@dataclass(frozen=True)
class SwaConstant(Averaged):
    """SWA with a constant learning rate."""

    name = "swa-constant"
    meaning = "the average of checkpoints, at a high learning rate"
    schedule = "swa-constant"

    def rate(self, epoch: int, epochs: int, peak: float) -> float:
        """Rise to the peak, stay for half of the training, move in a line to half the peak at three quarters, stay."""
        start, turn, first = 0.5 * epochs, START * epochs, round(START * epochs)
        warmup = short(first)
        if epoch < warmup:
            return peak * (epoch + 1) / warmup
        if epoch >= first:
            return RATE * peak
        share = min(1.0, max(0.0, (epoch - start) / (turn - start)))
        return peak * (1 - share * (1 - RATE))


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

    z_2 is one vector of K numbers for all weights of a sample. The numbers are the same on every
    device, and in whatever order the groups of weights come.
    """
    k = len(checkpoints)
    if k < 2:
        raise ValueError(f"a Gaussian fitted to {k} checkpoints: expected at least 2")
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
