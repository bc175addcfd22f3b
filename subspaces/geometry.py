"""Mixing vertices, and the angles and distances between them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subspaces import sharding


class Distances(NamedTuple):
    """All pairs of vertices, as symmetric matrices [m, m]."""

    l2: Tensor
    cos2: Tensor


def exactly(device: torch.device) -> AbstractContextManager[Any]:
    """Leave autocast aside where it is on: a product in bfloat16 would break batch norm."""
    low = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if low else nullcontext()


def mix(coefficients: Tensor, omega: Tensor) -> Tensor:
    """Return c^T Omega: [m] or [m, n] times [m, n] -> [n]; half-precision weights are mixed in float32."""
    if sharding.mesh_of(omega) is None:
        return _mix(coefficients, omega)
    mixed = _mix(sharding.columns(coefficients, omega), sharding.local(omega))
    return sharding.gathered(mixed, omega)


def _mix(coefficients: Tensor, omega: Tensor) -> Tensor:
    compiling = torch.compiler.is_compiling()
    if len(omega) == 1 and not (compiling or coefficients.requires_grad):
        return omega.squeeze(0)  # as coefficients sum to 1
    half = omega.dtype in (torch.float16, torch.bfloat16)
    vertices = omega.float() if half else omega
    c = coefficients.to(vertices.dtype)
    if c.ndim == 1 and not compiling:
        return (c @ vertices).to(omega.dtype)
    columns = c[:, None] if c.ndim == 1 else c  # compiled, a sum fuses with what follows, a product does not
    return (columns * vertices).sum(0).to(omega.dtype)


def _real(omega: Tensor) -> Tensor:
    """Return real numbers of at least float32: a complex weight counts as two."""
    if omega.is_complex():
        omega = torch.view_as_real(omega).flatten(1)
    return omega if omega.dtype == torch.float64 else omega.float()


def cos2(rows: Sequence[Tensor], chosen: Tensor | None = None) -> Tensor:
    """Return cos^2 = <a, b>^2 / (|a|^2 |b|^2) of two vectors, in pieces [2, n] or chosen from [m, n]; 0 if one is 0."""
    products: list[tuple[Tensor, Tensor, Tensor]] = []
    with exactly(rows[0].device):
        for row in rows:
            piece = sharding.local(row)
            a, b = _real(piece if chosen is None else piece.index_select(0, chosen))
            products.append(((a * b).sum(), (a * a).sum(), (b * b).sum()))
    ab, aa, bb = products[0]
    if len(products) > 1 or sharding.mesh_of(rows[0]) is not None:
        sums = torch.stack([torch.stack(each) for each in products]).sum(0)
        ab, aa, bb = sharding.total(sums, rows[0]).unbind()
    tiny = torch.finfo(ab.dtype).tiny  # which changes nothing but 0, and takes half the time of a clamp
    return (ab / (aa + tiny)) * (ab / (bb + tiny))  # aa * bb may overflow


def distances(rows: Sequence[Tensor]) -> Distances:
    """Return L2 distance and cos^2 of all pairs of the vectors given in pieces [m, n], in float64."""
    pieces = [_real(sharding.local(row)).double() for row in rows]
    exact = "donot_use_mm_for_euclid_dist"
    squares = torch.stack([torch.cdist(piece, piece, compute_mode=exact).square() for piece in pieces]).sum(0)
    products = torch.stack([piece @ piece.T for piece in pieces]).sum(0)
    squares, products = sharding.total(torch.stack([squares, products]), rows[0]).unbind()
    products = (products + products.T) / 2
    norms = products.diagonal().clamp_min(torch.finfo(torch.float64).tiny).sqrt()
    return Distances(squares.sqrt(), (products / torch.outer(norms, norms)).square())
