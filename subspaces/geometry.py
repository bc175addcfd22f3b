"""Mixing vertices, and the angles and distances between them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Distances(NamedTuple):
    """All pairs of vertices, as symmetric matrices [m, m]."""

    l2: Tensor
    cos2: Tensor


def mix(coefficients: Tensor, omega: Tensor) -> Tensor:
    """Return c^T Omega: [m] or [m, n] times [m, n] -> [n]; half-precision weights are mixed in float32."""
    half = omega.dtype in (torch.float16, torch.bfloat16)
    vertices = omega.float() if half else omega
    c = coefficients.to(vertices.dtype)
    row = c @ vertices if c.ndim == 1 else (c * vertices).sum(0)
    return row.to(omega.dtype)


def _real(omega: Tensor) -> Tensor:
    """Return real numbers of at least float32: a complex weight counts as two."""
    if omega.is_complex():
        omega = torch.view_as_real(omega).flatten(1)
    return omega if omega.dtype == torch.float64 else omega.float()


def cos2(rows: Sequence[Tensor]) -> Tensor:
    """Return cos^2 = <a, b>^2 / (|a|^2 |b|^2) of two vectors, given in pieces [2, n]; 0 if one is 0."""
    products = []
    with torch.autocast(rows[0].device.type, enabled=False):
        for piece in rows:
            a, b = _real(piece)
            products.append(torch.stack([(a * b).sum(), (a * a).sum(), (b * b).sum()]))
    ab, aa, bb = torch.stack(products).sum(0).unbind()
    return ab.square() / (aa * bb).clamp_min(torch.finfo(ab.dtype).tiny)


def distances(rows: Sequence[Tensor]) -> Distances:
    """Return L2 distance and cos^2 of all pairs of the vectors given in pieces [m, n]."""
    m = len(rows[0])
    l2 = torch.zeros(m, m, dtype=torch.float64)
    angle = torch.ones(m, m, dtype=torch.float64)
    for j in range(m):
        for k in range(j):
            difference = sum(float((_real(row[j]) - _real(row[k])).square().sum(dtype=torch.float64)) for row in rows)
            l2[j, k] = l2[k, j] = difference**0.5
            angle[j, k] = angle[k, j] = float(cos2([row[[j, k]].double() for row in rows]))
    return Distances(l2, angle)
