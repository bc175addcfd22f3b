"""Mixing vertices, and the angles and distances between them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from subspaces.core import _compat, distributed

LARGE = 2**22  # numbers of a matrix from which its gradient is made late
PART = 2**18  # numbers of it that are made at a time on a CPU, so that what lies between stays in its cache
_HALF = (torch.float16, torch.bfloat16)
_REAL: dict[torch.dtype, tuple[Any, Any]] = {  # with the smallest number, which changes nothing but a norm of 0
    torch.float32: (np.float32, np.finfo(np.float32).tiny),
    torch.float64: (np.float64, np.finfo(np.float64).tiny),
}
Pair = Tensor | tuple[int, int]  # which two of several rows: int64 [2], or numbers where they are at hand


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


def _real(omega: Tensor) -> Tensor:
    """Return real numbers of at least float32: a complex weight counts as two."""
    if omega.is_complex():
        omega = torch.view_as_real(omega).flatten(-2)
    return omega if omega.dtype == torch.float64 else omega.float()


def _products(rows: Tensor, chosen: Pair | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return <a, b>, <a, a> and <b, b> of the two rows, or of two chosen ones."""
    if isinstance(chosen, tuple):
        every = rows.unbind()
        a, b = (_real(every[index]) for index in chosen)  # no copies
    else:
        a, b = _real(rows if chosen is None else rows.index_select(0, chosen)).unbind()
    return (a * b).sum(), (a * a).sum(), (b * b).sum()


class _Late(torch.autograd.Function):
    """`_products` of large matrices, with their gradients 2 a, b and 2 b, a in closed form, when nothing else is left.

    Autograd would begin with them, beside the activations of the network. The numbers are the same, to the last bit.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor, chosen: Pair | None) -> Tensor:
        return torch.stack(_products(rows, chosen))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Pair | None], output: Tensor) -> None:
        rows, ctx.chosen = inputs
        ctx.save_for_backward(rows)
        _compat.run_last(ctx)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (rows,), chosen = ctx.saved_tensors, ctx.chosen
        ab, aa, bb = gradient.unbind()
        ofa, ofb = torch.stack([2 * aa, ab]), torch.stack([ab, 2 * bb])  # how much of a and b is in both gradients
        if chosen is not None:
            chosen = torch.as_tensor(chosen, device=rows.device)
            ofa, ofb = (ofa.new_zeros(len(rows)).index_add(0, chosen, each) for each in (ofa, ofb))
        found = torch.empty_like(rows)
        size = (PART if rows.is_cpu else LARGE) // len(rows) + 1
        for start in range(0, rows.shape[1], size):
            part = rows[:, start : start + size]
            a, b = part if chosen is None else part.index_select(0, chosen)
            found[:, start : start + size] = (ofa[:, None] * a).add_(ofb[:, None] * b)
        return found, None


class _Cos2(torch.autograd.Function):
    """cos^2 of two rows of a matrix on a CPU, with its gradient g_ab b + 2 g_aa a and g_ab a + 2 g_bb b.

    Value and gradient have the bits that autograd gives them, in less time: scalars are plain numbers.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, first: int, second: int) -> Tensor:
        every = rows.unbind()
        a, b = every[first], every[second]
        ab, aa, bb = (a * b).sum().item(), (a * a).sum().item(), (b * b).sum().item()
        ctx.save_for_backward(rows)
        if rows.numel() >= LARGE:
            _compat.run_last(ctx)
        real, tiny = _REAL[rows.dtype]
        if not (_is_ordinary(ab) and _is_ordinary(aa) and _is_ordinary(bb)):
            real, tiny = float, float(tiny)  # which neither overflows nor warns
        ab, p, q = real(ab), real(aa) + tiny, real(bb) + tiny
        u, v = ab / p, ab / q
        ctx.known = first, second, u, v, p, q
        return torch.full((), float(u * v), dtype=rows.dtype, device=rows.device)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (rows,), (first, second, u, v, p, q) = ctx.saved_tensors, ctx.known
        if torch.is_grad_enabled():  # create_graph=True
            value = _cos2(*_products(rows, (first, second)))
            return *torch.autograd.grad(value, rows, gradient, create_graph=True), None, None
        try:
            g, batched = gradient.item(), None
        except RuntimeError:  # several gradients at once, which have no one number
            g, batched = 1.0, gradient
        if _is_ordinary(g):
            g = type(u)(g)
        else:
            u, v, p, q = float(u), float(v), float(p), float(q)
        of_u, of_v = g * v, g * u
        of_ab, of_aa, of_bb = of_v / q + of_u / p, -of_u * (u / p), -of_v * (v / q)
        several = [[2 * of_aa, of_ab], [of_ab, 2 * of_bb]]
        plain = isinstance(of_ab, float) and rows.dtype != torch.float64  # which may be too large for float32
        kept = None if plain else torch.from_numpy(np.array(several, type(of_ab)))  # numpy 1: 2 * float32 is float64
        factors = torch.tensor(several, dtype=rows.dtype) if kept is None else kept
        with exactly(rows.device):
            if len(rows) == 2:
                found = factors @ rows
            else:
                found, pair = torch.zeros_like(rows), slice(first, second + 1, second - first)
                torch.mm(factors, rows[pair], out=found[pair])
            return found if batched is None else batched * found, None, None


def _is_ordinary(value: float) -> bool:
    """Return whether products and quotients of such numbers are far from the limits of float32, or 0."""
    return 1e-6 <= abs(value) <= 1e6 or value == 0


_late: Callable[[Tensor, Pair | None], Tensor] = _Late.apply
_closed: Callable[[Tensor, int, int], Tensor] = _Cos2.apply


def cos2(rows: Sequence[Tensor], chosen: Pair | None = None) -> Tensor:
    """Return cos^2 = <a, b>^2 / (|a|^2 |b|^2) of two vectors, in pieces [2, n] or chosen from [m, n]; 0 if one is 0."""
    first, compiling = rows[0], torch.compiler.is_compiling()
    closed = len(rows) == 1 and type(first) is nn.Parameter and first.is_cpu and first.dtype in _REAL
    if closed and not (compiling or isinstance(chosen, Tensor) or first.is_inference() or _compat.is_observed()):
        return _closed(first, *(sorted(chosen) if chosen else (0, 1)))
    products: list[tuple[Tensor, ...]] = []
    with exactly(first.device):
        for row in rows:
            piece = distributed.local(row)
            late = piece.numel() >= LARGE and piece.dtype in _REAL and not compiling  # a compiler has its own order
            products.append(_late(piece, chosen).unbind() if late else _products(piece, chosen))
    if len(products) > 1 or distributed.mesh_of(first) is not None:
        sums = torch.stack([torch.stack(each) for each in products]).sum(0)
        products = [distributed.total(sums, first).unbind()]
    return _cos2(*products[0])


def _cos2(ab: Tensor, aa: Tensor, bb: Tensor) -> Tensor:
    tiny = torch.finfo(ab.dtype).tiny  # which changes nothing but 0, and takes half the time of a clamp
    return (ab / (aa + tiny)) * (ab / (bb + tiny))  # aa * bb may overflow


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
