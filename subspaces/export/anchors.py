"""Batch-norm statistics between the points where they were measured, as a function that a graph can compute.

Statistics belong to a point. They are measured at anchors a_1 … a_k and mixed by a basis with b_i(a_j) = [i = j]:

    statistics(alpha) = sum_i b_i(alpha) statistics(a_i)

    a number in [0, 1]   hat functions on 11 points, b_i = max(0, 1 - |10 alpha - i|)
    a simplex            vertices, b_i = alpha_i (2 alpha_i - 1), and middles of edges, b_ij = 4 alpha_i alpha_j
"""

from itertools import combinations

import torch
from torch import Tensor
from torch.nn import functional as F

from subspaces.core.shapes import Shape
from subspaces.evaluation.points import Place, kind

PIECES = 10  # of the interval
BETWEEN = (0.05, 0.35, 0.65, 0.95)  # in the middle of four pieces, where the error is largest


def anchors(shape: Shape) -> list[Place]:
    """Return the points where statistics are measured."""
    if kind(shape) == "interval":
        return [index / PIECES for index in range(PIECES + 1)]
    m = shape.vertices
    return [_middle(ends, m) for size in (1, 2) for ends in combinations(range(m), size)]


def basis(shape: Shape, alpha: Tensor) -> Tensor:
    """Return the weight of each anchor at alpha: [*point] -> [k]."""
    if kind(shape) == "interval":
        places = torch.arange(PIECES + 1, dtype=alpha.dtype, device=alpha.device)
        return F.relu(1 - (PIECES * alpha - places).abs())
    edges = [4 * alpha[i] * alpha[j] for i, j in combinations(range(shape.vertices), 2)]
    return torch.cat([alpha * (2 * alpha - 1), torch.stack(edges)])


def inside(shape: Shape, alpha: Tensor) -> Tensor:
    """Return the point of the domain that is meant, since a graph cannot refuse one that is off it."""
    if kind(shape) == "interval":
        return alpha.clamp(0, 1)
    positive = alpha.clamp(min=0)
    return positive / positive.sum()


def between(shape: Shape) -> list[Place]:
    """Return points far from all anchors, where mixed statistics are compared with measured ones."""
    if kind(shape) == "interval":
        return list(BETWEEN)
    m = shape.vertices
    centre = [1 / m] * m
    towards = [tuple((c + float(index == i)) / 2 for i, c in enumerate(centre)) for index in range(min(m, 3))]
    return [tuple(centre), *towards]


def _middle(ends: tuple[int, ...], m: int) -> Place:
    return tuple(1 / len(ends) if index in ends else 0.0 for index in range(m))
