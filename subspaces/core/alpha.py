"""From alpha, in any of the forms a user may write it, to coefficients for every weight.

It is one point for the whole network, or one per layer:

    0.3                                   the point 0.3 of a line or curve
    [0.2, 0.3, 0.5]                       a point of a simplex
    torch.rand(len(family.layers))        layerwise: one point per layer
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import _compat, checks, nested
from subspaces.core.layout import Layout
from subspaces.core.shapes import Shape
from subspaces.errors import ArgumentError

Alpha = float | Sequence[Any] | Tensor


def to_alpha(value: Alpha, shape: Shape, like: Tensor, outside: bool) -> Tensor:
    """Return `value` as a tensor on the device and of the dtype of `like`, or raise what is wrong with it."""
    checks.flag("outside", outside)
    try:
        if isinstance(value, int | float):
            alpha = like.new_zeros(()) + value  # not a constant when traced: compiled once for all numbers
        elif isinstance(value, list | tuple) and value and all(isinstance(each, int | float) for each in value):
            alpha = torch.stack([like.new_zeros(()) + each for each in value])
        else:
            alpha = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ArgumentError(
            f"alpha={checks.shown(value)} cannot be read as numbers ({error}): expected {shape.domain}, "
            "or a tensor with one such point per layer"
        ) from None
    if alpha.ndim >= len(shape.point) and alpha.shape[alpha.ndim - len(shape.point) :] == shape.point:
        _check_domain(alpha, shape, outside, value)
    return alpha


def _check_domain(alpha: Tensor, shape: Shape, outside: bool, value: Alpha) -> None:
    """Refuse points that are not in the domain; a traced, captured or `vmap`ped alpha cannot be looked at."""
    if torch.compiler.is_compiling() or _compat.is_batched(alpha):
        return
    if alpha.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    expected, hint = (shape.beyond, "") if outside else (shape.domain, "")
    bad = ~shape.valid(alpha)
    if not outside and not bool(bad.any()):
        bad, hint = ~shape.inside(alpha), "; pass outside=True to go off the subspace"
    if bool(bad.any()):
        shown = alpha[bad][0].tolist() if isinstance(value, Tensor) else value
        raise ArgumentError(f"alpha={checks.shown(shown)} is not a point of {shape}: expected {expected}{hint}")


def coefficients(alpha: Tensor, shape: Shape, layout: Layout) -> dict[str, Tensor]:
    """Return for each group of weights the coefficients at alpha: [m], or [m, n] where they differ within it."""
    point, layers, found = shape.point, len(layout.layers), {}
    if alpha.shape == point:
        c = shape.coefficients(alpha)  # [m]
        for group in layout.groups:
            found[group.name] = c
        return found
    if alpha.shape == (layers, *point):
        by_layer = shape.coefficients(alpha).unbind()  # L of [m]
        for group in layout.groups:
            columns = []
            for entry, size in zip(group.entries, group.sizes, strict=True):
                columns.append(by_layer[entry.layer].expand(size, shape.vertices).t())
            found[group.name] = torch.cat(columns, dim=1)
        return found
    raise ArgumentError(
        f"alpha has shape {tuple(alpha.shape)}: expected {point} for one point of {shape}, "
        f"or {(layers, *point)} for one point in each of the {layers} layers"
    )


# Points among the inputs of a network


def check_names(network: nn.Module) -> None:
    """Refuse a network with an input that a family's call takes itself."""
    try:
        inputs = inspect.signature(network.forward).parameters
    except (TypeError, ValueError):
        return
    for name in ("alpha", "samples", "features", "outside"):
        if name in inputs:
            raise ArgumentError(
                f"the network has an input named {name!r}, which a family's own call takes: wrap the network in a "
                f"module whose forward has another name for it and passes it on, self.network(…, {name}=other)"
            )


def check_inputs(args: Sequence[Any], shape: Shape, layout: Layout) -> None:
    """Refuse numbers in second place that read as alpha and not as a tensor with one row for each example."""
    given, batch = args[1], nested.batch_size(args[0])
    size: tuple[int, ...] = ()
    if isinstance(given, list | tuple) and all(isinstance(each, int | float) for each in given):
        size, batch = (len(given),), None
    elif isinstance(given, Tensor) and given.is_floating_point():
        size = tuple(given.shape)
    elif not isinstance(given, int | float) or isinstance(given, bool):
        return
    if size == () or (size in (shape.point, (len(layout.layers), *shape.point)) and size[0] != batch):
        raise ArgumentError(
            f"family(x, {checks.shown(given)}): positions belong to the network's inputs; write family(x, alpha=…) "
            "for a point, and give an input of the network that looks like one by its name"
        )
