"""Samples of a Gaussian that is fitted to checkpoints (SWA-Gaussian, Maddox et al., 2019)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from subspaces.methods.checkpoints import Collected, Collecting, Rows
from subspaces.methods.method import METHODS
from subspaces.methods.swa import SwaCyclic
from subspaces.shapes import Shape


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


class Drawing(Collecting):
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
