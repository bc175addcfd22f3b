"""Mixing vertices, and the angles and distances between them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from subspaces.core import _compat, distributed

LARGE = 2**22  # numbers of a matrix from which its gradient waits for that of the network
_HALF = (torch.float16, torch.bfloat16)
_Total = Callable[[Tensor], Tensor]


class Distances(NamedTuple):
    """All pairs of vertices, as symmetric matrices [m, m]."""

    l2: Tensor
    cos2: Tensor


def exactly(device: torch.device) -> AbstractContextManager[Any]:
    """Leave autocast aside where it is on: a product in bfloat16 would break batch norm."""
    low = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if low else nullcontext()


def is_number(value: Tensor) -> bool:
    """Return whether a tensor is one real number."""
    plain = value.layout == torch.strided and not value.is_quantized and not value.is_meta
    return plain and value.numel() == 1 and not value.is_complex() and value.dtype != torch.bool


def mix(coefficients: Tensor, omega: Tensor) -> Tensor:
    """Return c^T Omega: [m] or [m, n] times [m, n] -> [n]; half-precision weights are mixed in float32."""
    if type(omega) not in (nn.Parameter, Tensor) and distributed.mesh_of(omega) is not None:
        mixed = mix(distributed.columns(coefficients, omega), distributed.local(omega))
        return distributed.gathered(mixed, omega)
    compiling, dtype = torch.compiler.is_compiling(), omega.dtype
    if omega.shape[0] == 1 and not (compiling or coefficients.requires_grad):
        return omega.squeeze(0)  # as coefficients sum to 1
    vertices = omega.float() if dtype in _HALF else omega
    c = coefficients if coefficients.dtype == vertices.dtype else coefficients.to(vertices.dtype)
    if c.ndim == 1 and compiling:  # a sum fuses with what follows, a product does not
        c = c[:, None]
    mixed = c @ vertices if c.ndim == 1 else (c * vertices).sum(0)
    return mixed if mixed.dtype == dtype else mixed.to(dtype)


def cos2(rows: Sequence[Tensor], chosen: Tensor | None = None) -> Tensor:
    """Return cos^2 = <a, b>^2 / (|a|^2 |b|^2) of two vectors, in pieces [2, n] or chosen from [m, n]; 0 if one is 0."""
    sharded = type(rows[0]) is not nn.Parameter and distributed.mesh_of(rows[0]) is not None
    total = partial(distributed.total, omega=rows[0]) if sharded else None
    pieces = [distributed.local(row) for row in rows] if sharded else rows
    if _in_closed_form(pieces, chosen):
        value: Tensor = _Cos2.apply(chosen, total, *pieces)  # type: ignore[no-untyped-call]
        return value
    return _cos2(pieces, chosen, total)


def _in_closed_form(pieces: Sequence[Tensor], chosen: Tensor | None) -> bool:
    """Return whether the gradient is made in closed form: on a CPU, and of large matrices."""
    if torch.compiler.is_compiling():
        return False  # which has its own order
    first, size = pieces[0], 0
    for piece in pieces:
        if piece.dtype not in (torch.float32, torch.float64) or not piece.requires_grad or piece.dtype != first.dtype:
            return False
        if _compat.is_transformed(piece):
            return False
        size = max(size, piece.numel())
    if first.is_cpu:
        return not _compat.is_tracing() and (chosen is None or not _compat.is_transformed(chosen))
    return size >= LARGE


def _cos2(pieces: Sequence[Tensor], chosen: Tensor | None, total: _Total | None) -> Tensor:
    """Return cos^2 by operations that autograd knows."""
    with exactly(pieces[0].device):
        ab, aa, bb = _products([_real(piece) for piece in pieces], chosen, total)
    u, v = _factors(ab, aa, bb, torch.finfo(ab.dtype).tiny)
    return u * v


def _real(omega: Tensor) -> Tensor:
    """Return real numbers of at least float32: a complex weight counts as two."""
    if omega.is_complex():
        omega = torch.view_as_real(omega).flatten(-2)
    return omega if omega.dtype == torch.float64 else omega.float()


def _pair(rows: Tensor, chosen: Tensor | None) -> Tensor:
    """Return the two rows that are chosen: [m, n] -> [2, n], in any order; on a CPU a view, not a copy."""
    if chosen is None:
        return rows
    if not chosen.is_cpu or torch.compiler.is_compiling() or _compat.is_transformed(chosen):
        return rows.index_select(0, chosen)
    first, second = sorted(chosen.tolist())
    return rows[first : second + 1 : second - first]


def _products(pieces: Sequence[Tensor], chosen: Tensor | None, total: _Total | None) -> Sequence[Tensor]:
    """Return <a, b>, <a, a> and <b, b> over all pieces."""
    found = []
    for piece in pieces:
        a, b = _pair(piece, chosen).unbind()
        found.append(((a * b).sum(), (a * a).sum(), (b * b).sum()))
    if len(found) == 1 and total is None:
        return found[0]
    sums = torch.stack([torch.stack(each) for each in found]).sum(0)
    return (sums if total is None else total(sums)).unbind()


def _factors(ab: Any, aa: Any, bb: Any, tiny: Any) -> tuple[Any, Any]:
    """Return the two factors of cos^2, whose own product may not overflow; `tiny` changes nothing but a 0."""
    return ab / (aa + tiny), ab / (bb + tiny)


class _Cos2(torch.autograd.Function):
    """cos^2 with its gradient in closed form, g_ab b + 2 g_aa a and g_ab a + 2 g_bb b: the same bits as autograd's.

    On a CPU the scalars are plain numbers. Of a large matrix the gradient is computed when nothing else is left:
    autograd would begin with it, and it would lie beside the activations of the network until they are used.
    """

    @staticmethod
    def forward(ctx: Any, chosen: Tensor | None, total: _Total | None, *pieces: Tensor) -> Tensor:
        products = _products(pieces, chosen, total)
        ctx.save_for_backward(*pieces)
        ctx.chosen, ctx.total, ctx.tiny = chosen, total, torch.finfo(pieces[0].dtype).tiny
        if pieces[0].numel() >= LARGE:
            _compat.run_last(ctx)
        if not pieces[0].is_cpu:
            ctx.products = products
            u, v = _factors(*products, ctx.tiny)
            return u * v  # type: ignore[no-any-return]
        real = np.float64 if pieces[0].dtype == torch.float64 else np.float32
        ctx.products, ctx.tiny = [real(each.item()) for each in products], real(ctx.tiny)
        with np.errstate(all="ignore"):
            u, v = _factors(*ctx.products, ctx.tiny)
            return torch.full((), float(u * v), dtype=pieces[0].dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        pieces = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            value = _cos2(pieces, ctx.chosen, ctx.total)
            return None, None, *torch.autograd.grad(value, pieces, gradient, create_graph=True)
        ab, aa, bb = ctx.products
        g: Any = type(ab)(gradient.item()) if gradient.is_cpu else gradient
        with np.errstate(all="ignore"):
            u, v = _factors(ab, aa, bb, ctx.tiny)
            of_ab = g * u / (bb + ctx.tiny) + g * v / (aa + ctx.tiny)
            of_aa, of_bb = -(g * v) * (u / (aa + ctx.tiny)), -(g * u) * (v / (bb + ctx.tiny))
            scalars = [2 * of_aa, of_ab, of_ab, 2 * of_bb]
        with exactly(gradient.device):
            return None, None, *(_spread(scalars, piece, ctx.chosen) for piece in pieces)


def _spread(scalars: list[Any], rows: Tensor, chosen: Tensor | None) -> Tensor:
    """Return the gradient of rows [m, n]: of the two chosen ones a matrix [2, 2] of scalars times them, else 0."""
    if rows.is_cpu:
        factors = np.zeros((len(rows), 2), type(scalars[0]))
        factors[[0, 1] if chosen is None else sorted(chosen.tolist())] = np.array(scalars).reshape(2, 2)
        return torch.from_numpy(factors) @ _pair(rows, chosen)
    factors = torch.stack(scalars).view(2, 2)
    if chosen is not None:
        factors = factors.new_zeros(len(rows), 2).index_copy_(0, chosen, factors)
    found = torch.empty_like(rows)
    size = LARGE // len(rows) + 1
    for start in range(0, rows.shape[1], size):  # in parts, and not by a product, which a device may round to TF32
        part = rows[:, start : start + size]
        a, b = _pair(part, chosen)
        found[:, start : start + size] = (factors[:, :1] * a).add_(factors[:, 1:] * b)
    return found


def distances(rows: Sequence[Tensor]) -> Distances:
    """Return L2 distance and cos^2 of all pairs of the vectors given in pieces [m, n], in float64."""
    pieces = [_real(distributed.local(row)).double() for row in rows]
    exact = "donot_use_mm_for_euclid_dist"
    squares = torch.stack([torch.cdist(piece, piece, compute_mode=exact).square() for piece in pieces]).sum(0)
    products = torch.stack([piece @ piece.T for piece in pieces]).sum(0)
    squares, products = distributed.total(torch.stack([squares, products]), rows[0]).unbind()
    products = (products + products.T) / 2
    norms = products.diagonal().clamp_min(torch.finfo(torch.float64).tiny).sqrt()
    return Distances(squares.sqrt(), (products / torch.outer(norms, norms)).square())
