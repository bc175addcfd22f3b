"""The shapes a subspace can have, all linear in their vertices: the point at alpha is theta = c(alpha)^T Omega.

A shape defines how alpha is drawn, its coefficients c and its midpoint; no other code depends on which shape it is
(evaluation asks whether alpha is a number), so a new shape is one new class.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from subspaces.core import checks
from subspaces.errors import ArgumentError

Random = Callable[[tuple[int, ...]], Tensor]
"""A source of numbers uniform on [0, 1), such as `torch.rand`."""


@dataclass(frozen=True)
class Shape(ABC):
    """What a subspace needs to know of its shape; derive from this to add one.

    Example:
        >>> class Chords(ss.Line):  # from the first network to the second and back
        ...     def coefficients(self, alpha):
        ...         return super().coefficients(1 - (2 * alpha - 1).abs())
        >>> family = ss.Subspace(make_net, Chords())
        >>> shape, alpha = family.shape, family.shape.sample((1000,))
        >>> bool(shape.inside(alpha).all()), shape.coefficients(alpha).shape, shape.midpoint()
        (True, torch.Size([1000, 2]), tensor(0.5000))
        >>> shape.valid(torch.tensor([1.5, torch.nan])), shape.separation(torch.tensor(0.1), torch.tensor(0.9))
        (tensor([ True, False]), tensor(0.8000))
    """

    domain: ClassVar[str]  # the set of all alpha, in words, for error messages
    beyond: ClassVar[str] = "finite numbers"  # what alpha may be off the domain, in words

    @property
    @abstractmethod
    def vertices(self) -> int:
        """The number m of vertices."""

    @property
    @abstractmethod
    def point(self) -> tuple[int, ...]:
        """The tensor shape of one alpha."""

    @abstractmethod
    def sample(self, size: tuple[int, ...] = (), random: Random = torch.rand) -> Tensor:
        """Draw alpha uniformly from the domain: a tensor of shape [*size, *point]."""

    @abstractmethod
    def coefficients(self, alpha: Tensor) -> Tensor:
        """Return c(alpha): [..., *point] -> [..., m]; each row sums to one."""

    @abstractmethod
    def midpoint(self) -> Tensor:
        """Return the alpha in the middle of the domain."""

    @abstractmethod
    def inside(self, alpha: Tensor) -> Tensor:
        """Return for each alpha whether it lies in the domain: [..., *point] -> bool [...]."""

    def valid(self, alpha: Tensor) -> Tensor:
        """Return for each alpha whether it is a point at all, inside the domain or not."""
        return alpha.isfinite().flatten(-len(self.point)).all(-1) if self.point else alpha.isfinite()

    def separation(self, first: Tensor, second: Tensor) -> Tensor:
        """Return how far apart two alphas are, 0 to 1: the difference of numbers, half the L1 distance of vectors."""
        difference = (first - second).abs()
        return difference.sum(-1) / 2 if self.point else difference


@dataclass(frozen=True)
class _Interval(Shape):
    """A one-dimensional shape: alpha is a number between 0 and 1."""

    domain: ClassVar[str] = "a number in [0, 1]"
    point: ClassVar[tuple[int, ...]] = ()

    def sample(self, size: tuple[int, ...] = (), random: Random = torch.rand) -> Tensor:
        return random(size)

    def midpoint(self) -> Tensor:
        return torch.tensor(0.5)

    def inside(self, alpha: Tensor) -> Tensor:
        return (alpha >= 0) & (alpha <= 1)


@dataclass(frozen=True)
class Point(_Interval):
    """A single network, wherever alpha is: P(alpha) = omega. Ordinary training, in the words of a subspace.

    Example:
        >>> ss.Point().coefficients(torch.tensor(0.3))
        tensor([1.])
    """

    vertices: ClassVar[int] = 1

    def coefficients(self, alpha: Tensor) -> Tensor:
        return torch.ones_like(alpha)[..., None]


@dataclass(frozen=True)
class Line(_Interval):
    """The line between two networks: P(alpha) = (1 - alpha) omega_1 + alpha omega_2.

    Example:
        >>> ss.Line().coefficients(torch.tensor(0.3))
        tensor([0.7000, 0.3000])
    """

    vertices: ClassVar[int] = 2

    def coefficients(self, alpha: Tensor) -> Tensor:
        return torch.stack([1 - alpha, alpha], dim=-1)


@dataclass(frozen=True)
class Bezier(_Interval):
    """A Bezier curve from the first vertex to the last, drawn towards the bends between them.

    P(alpha) = sum_i binom(d, i) (1 - alpha)^(d-i) alpha^i omega_i with degree d = bends + 1. The
    vertices are in the order of the curve: endpoint, bends, endpoint.

    Example:
        >>> ss.Bezier(bends=1).coefficients(torch.tensor(0.5))
        tensor([0.2500, 0.5000, 0.2500])
    """

    bends: int = 1

    def __post_init__(self) -> None:
        checks.whole("bends", self.bends, 1, 1000, beside="; without a bend use Line()")
        object.__setattr__(self, "bends", int(self.bends))

    @property
    def vertices(self) -> int:
        return self.bends + 2

    def coefficients(self, alpha: Tensor) -> Tensor:
        degree = self.bends + 1
        terms = [math.comb(degree, i) * (1 - alpha) ** (degree - i) * alpha**i for i in range(degree + 1)]
        return torch.stack(terms, dim=-1)


@dataclass(frozen=True)
class Simplex(Shape):
    """The convex hull of m networks: P(alpha) = sum_i alpha_i omega_i with alpha_i >= 0 and sum alpha = 1.

    Example:
        >>> ss.Simplex(4).midpoint().tolist()
        [0.25, 0.25, 0.25, 0.25]
    """

    m: int = 3
    domain: ClassVar[str] = "non-negative numbers that sum to 1"
    beyond: ClassVar[str] = "finite numbers that sum to 1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", checks.whole("m", self.m, 2, 1000, beside=", the number of vertices"))

    @property
    def vertices(self) -> int:
        return self.m

    @property
    def point(self) -> tuple[int, ...]:
        return (self.m,)

    def sample(self, size: tuple[int, ...] = (), random: Random = torch.rand) -> Tensor:
        exponential = -torch.log1p(-random((*size, self.m))) + torch.finfo(torch.float32).tiny
        return exponential / exponential.sum(-1, keepdim=True)

    def coefficients(self, alpha: Tensor) -> Tensor:
        return alpha

    def midpoint(self) -> Tensor:
        return torch.full((self.m,), 1 / self.m, dtype=torch.float64)

    def inside(self, alpha: Tensor) -> Tensor:
        return (alpha >= 0).all(-1)

    def valid(self, alpha: Tensor) -> Tensor:
        return super().valid(alpha) & ((alpha.sum(-1) - 1).abs() <= 1e-4)


def check_shape(shape: object) -> None:
    """Refuse what is not a shape, such as the class instead of an instance."""
    if not isinstance(shape, Shape):
        raise ArgumentError(
            f"shape={checks.shown(shape)}: expected Line(), Bezier(bends), Simplex(m) or another Shape instance"
        )
