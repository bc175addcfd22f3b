"""Mixing vertices, and the angles and distances between them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from subspaces.core import _compat, distributed

LARGE = 2**22  # numbers of a matrix from which its gradient is made late
PART = 2**18  # numbers of it that are made at a time on a CPU, so that what lies between stays in its cache


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
    if len(omega) == 1 and not (compiling or coefficients.requires_grad):
        return omega.squeeze(0)  # as coefficients sum to 1
    vertices = omega.float() if dtype in (torch.float16, torch.bfloat16) else omega
    c = coefficients.to(vertices.dtype)
    if c.ndim == 1 and compiling:  # a sum fuses with what follows, a product does not
        c = c[:, None]
    return (c @ vertices if c.ndim == 1 else (c * vertices).sum(0)).to(dtype)


def _real(omega: Tensor) -> Tensor:
    """Return real numbers of at least float32: a complex weight counts as two."""
    if omega.is_complex():
        omega = torch.view_as_real(omega).flatten(-2)
    return omega if omega.dtype == torch.float64 else omega.float()


def _products(rows: Tensor, chosen: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return <a, b>, <a, a> and <b, b> of the two rows, or of two chosen ones."""
    if chosen is not None and chosen.is_cpu and not (torch.compiler.is_compiling() or _compat.is_transformed(chosen)):
        every = rows.unbind()
        a, b = (_real(every[index]) for index in chosen.tolist())  # no copies
    else:
        a, b = _real(rows if chosen is None else rows.index_select(0, chosen)).unbind()
    return (a * b).sum(), (a * a).sum(), (b * b).sum()


class _Late(torch.autograd.Function):
    """`_products` of large matrices, with their gradients 2 a, b and 2 b, a in closed form, when nothing else is left.

    Autograd would begin with them: the gradient of all vertices would lie beside the activations of the network until
    that of the network is there. The numbers are the same, to the last bit. For a small matrix autograd is quicker.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(rows: Tensor, chosen: Tensor | None) -> Tensor:
        return torch.stack(_products(rows, chosen))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        _compat.run_last(ctx)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        rows, chosen = ctx.saved_tensors
        ab, aa, bb = gradient.unbind()
        ofa, ofb = torch.stack([2 * aa, ab]), torch.stack([ab, 2 * bb])  # how much of a and b is in both gradients
        if chosen is not None:
            ofa, ofb = (ofa.new_zeros(len(rows)).index_add(0, chosen, each) for each in (ofa, ofb))
        found = torch.empty_like(rows)
        size = (PART if rows.is_cpu else LARGE) // len(rows) + 1
        for start in range(0, rows.shape[1], size):
            part = rows[:, start : start + size]
            a, b = part if chosen is None else part.index_select(0, chosen)
            found[:, start : start + size] = (ofa[:, None] * a).add_(ofb[:, None] * b)
        return found, None


_late: Callable[[Tensor, Tensor | None], Tensor] = _Late.apply


def cos2(rows: Sequence[Tensor], chosen: Tensor | None = None) -> Tensor:
    """Return cos^2 = <a, b>^2 / (|a|^2 |b|^2) of two vectors, in pieces [2, n] or chosen from [m, n]; 0 if one is 0."""
    products: list[tuple[Tensor, ...]] = []
    with exactly(rows[0].device):
        for row in rows:
            piece = distributed.local(row)
            late = piece.numel() >= LARGE and piece.dtype in (torch.float32, torch.float64)
            late = late and not torch.compiler.is_compiling()  # a compiler has an order of its own
            products.append(_late(piece, chosen).unbind() if late else _products(piece, chosen))
    ab, aa, bb = products[0]
    if len(products) > 1 or distributed.mesh_of(rows[0]) is not None:
        sums = torch.stack([torch.stack(each) for each in products]).sum(0)
        ab, aa, bb = distributed.total(sums, rows[0]).unbind()
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
