r"""A line whose whole ensemble is one network (Wortsman et al., 2021, "Integrating over Subspaces").

With f(x, P(alpha)) = g(x, P(0)) + d/dalpha g(x, P(alpha)) the mean of f over the line has a closed form:

    int_0^1 f(x, P(alpha)) dalpha = g(x, P(1)).

In training the derivative is a finite difference over epsilon, at an alpha that is drawn from all of [0, 1], as in the
paper: a line goes on beyond its end, up to P(1 + epsilon). With a finite epsilon

    int_0^1 f = g(1) + epsilon/2 (g'(1) - g'(0)) + O(epsilon^2),

while the mean of f over alpha = 0, epsilon, …, 1 - epsilon is g(1), but for rounding, for every epsilon that divides 1.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subspaces.core.family import Subspace
from subspaces.core.shapes import Line, Point, Shape
from subspaces.errors import ArgumentError
from subspaces.experiments.methods.checkpoints import rows, spanned
from subspaces.experiments.methods.fields import ABOVE_ZERO, setting
from subspaces.experiments.methods.method import METHODS, Hooks
from subspaces.experiments.methods.subspaces import Penalised


def outputs(family: Subspace, x: Any, epsilon: float, alpha: float | Tensor | None = None) -> Tensor:
    """Return f(x, P(alpha)) = g(x, P(0)) + (g(x, P(alpha + epsilon)) - g(x, P(alpha))) / epsilon.

    Without an alpha one is drawn for the whole network, as in training. Autocast is left aside: the difference of two
    close numbers, rounded to its few digits and divided by epsilon, would be noise.
    """
    if family.shape != Line():
        raise ArgumentError(f"the family is a {family.shape}: expected a Line(), which goes on beyond its ends")
    point = family.sample("network") if alpha is None else alpha
    dtype = next(family.parameters()).dtype
    x = x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x
    with torch.autocast(family.device.type, enabled=False):
        start, before, after = (family(x, alpha=each, outside=True) for each in (0.0, point, point + epsilon))
    found: Tensor = start + (after - before) / epsilon
    return found


def steps(epsilon: float) -> list[float]:
    """Return 0, epsilon, …, 1 - epsilon, where the mean of f is g(1) for every network g."""
    count = round(1 / epsilon)
    if count < 1 or abs(count * epsilon - 1) > 1e-6:
        raise ArgumentError(f"epsilon={epsilon}: expected 1 divided by a whole number, so that steps of it end at 1")
    return [index / count for index in range(count)]


class Integrating(Hooks["Integral"]):
    """Trains f on a line of networks g, whose end is the integral of f over the line."""

    together = True
    varying = ("beta",)

    def outputs(self, x: Tensor) -> Tensor:
        return outputs(self.family, x, self.method.epsilon)

    def penalties(self, outputs: Any) -> list[Tensor]:
        return [self.family.penalty(self.numbers["beta"])]

    def current_family(self) -> Subspace:
        return spanned(self.family, [rows(self.family, vertex=-1)], Point(), self.seed)


@METHODS.add
@dataclass(frozen=True)
class Integral(Penalised):
    """The end of a line, at one alpha for the whole network and batch."""

    name = "integral"
    meaning = "one network in place of a whole line"
    cost = 3.0
    hooks = Integrating
    epsilon: float = setting(
        0.1,
        "How far apart on the line the two networks are whose difference stands for the slope.",
        ABOVE_ZERO,
        symbol="ε",
    )

    def shape(self) -> Shape:
        return Line()

    def result_shape(self) -> Shape:
        return Point()
