"""From alpha, in any of the forms a user may write it, to coefficients for every weight.

One point for the whole network, one per layer, or a dict that names layers and parameters:

    0.3                                   the point 0.3 of a line or curve
    [0.2, 0.3, 0.5]                       a point of a simplex
    torch.rand(len(family.layers))        layerwise: one point per layer
    {"head": 0.9, "conv1.weight": a}      by name; `a` may hold one point per weight; the rest at the midpoint
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import _compat, checks, nested
from subspaces.core.layout import Entry, Group, Layout
from subspaces.core.shapes import Shape
from subspaces.errors import ArgumentError
from subspaces.text import nearest

Alpha = float | Sequence[Any] | Tensor | Mapping[str, Any]
OWN = ("alpha", "samples", "features", "outside")
"""What a family's call takes beside the network's inputs, always by keyword."""


def to_alpha(value: Alpha, shape: Shape, like: Tensor, outside: bool) -> Tensor:
    """Return `value` as a tensor on the device and of the dtype of `like`, or raise what is wrong with it."""
    checks.flag("outside", outside)
    if (wrong := _no_number(value, like)) is not None:
        raise ArgumentError(f"alpha={checks.shown(value)} is {wrong}: expected real numbers, {shape.domain}")
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
            "a tensor with one such point per layer, or a dict by layer name"
        ) from None
    if alpha.ndim >= len(shape.point) and alpha.shape[alpha.ndim - len(shape.point) :] == shape.point:
        _check_domain(alpha, shape, outside, value)
    return alpha


def _no_number(value: Any, like: Tensor) -> str | None:
    """Return what a value is that torch cannot read, or would silently change; None if it is neither."""
    if isinstance(value, int | float):
        return None
    if isinstance(value, Tensor):
        if value.is_complex():
            return "complex"
        if value.is_quantized or value.layout != torch.strided:
            return "a quantized tensor" if value.is_quantized else "a sparse tensor"
        return "a tensor on the meta device, without numbers" if value.is_meta and not like.is_meta else None
    if isinstance(value, list | tuple):
        return next((wrong for each in value if (wrong := _no_number(each, like)) is not None), None)
    kind = getattr(getattr(value, "dtype", None), "kind", "")  # of numpy
    return "complex" if isinstance(value, complex) or kind == "c" else None


def _check_domain(alpha: Tensor, shape: Shape, outside: bool, value: Alpha) -> None:
    """Refuse points that are not in the domain; a traced, captured or `vmap`ped alpha cannot be looked at."""
    if torch.compiler.is_compiling() or (alpha.is_cuda and torch.cuda.is_current_stream_capturing()):
        return
    if _compat.is_batched(alpha):
        return
    tests = [(shape.valid, shape.beyond if outside else shape.domain, "")]
    if not outside:
        tests.append((shape.inside, shape.domain, "; pass outside=True to go off the subspace"))
    for test, expected, hint in tests:
        bad = ~test(alpha)
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
            found[group.name] = _columns([by_layer[entry.layer] for entry in group.entries], group)
        return found
    raise ArgumentError(
        f"alpha has shape {tuple(alpha.shape)}: expected {point} for one point of {shape}, "
        f"or {(layers, *point)} for one point in each of the {layers} layers"
    )


def named_coefficients(
    alpha: Mapping[str, Any], shape: Shape, layout: Layout, like: Tensor, outside: bool
) -> dict[str, Tensor]:
    """Return the coefficients [m, n] of each group where alpha is given by layer or parameter name."""
    given = {name: to_alpha(value, shape, like, outside) for name, value in alpha.items()}
    unknown = [name for name in given if name not in layout.layers and name not in layout.entries]
    if unknown:
        hint = nearest(str(unknown[0]), [*layout.layers, *layout.entries])
        raise KeyError(f"alpha names {unknown[0]!r}, which is no layer and no trainable parameter: {hint}")
    middle = shape.midpoint().to(like)

    def of(entry: Entry) -> Tensor:
        layer = layout.layers[entry.layer]
        for name in entry.names:
            if name in given and name not in layout.layers:
                return shape.coefficients(_per_weight(given[name], entry, shape))
        value = given.get(layer, middle)
        if value.shape != shape.point:
            raise ArgumentError(f"alpha[{layer!r}] has shape {tuple(value.shape)}: expected {shape.point}, one point")
        return shape.coefficients(value)

    return {group.name: _columns([of(entry) for entry in group.entries], group) for group in layout.groups}


def _per_weight(alpha: Tensor, entry: Entry, shape: Shape) -> Tensor:
    """Return one point, or one point per weight in the order of the row."""
    if alpha.shape == shape.point:
        return alpha
    if alpha.shape != (*entry.shape, *shape.point):
        raise ArgumentError(
            f"alpha[{entry.names[0]!r}] has shape {tuple(alpha.shape)}: expected {shape.point} for one point, "
            f"or {(*entry.shape, *shape.point)} for one per weight"
        )
    return entry.flatten(alpha)


def _columns(parts: list[Tensor], group: Group) -> Tensor:
    """Stretch each entry's coefficients ([m], or [numel, m]) over its weights and join them: [m, n]."""
    columns = []
    for part, size in zip(parts, group.sizes, strict=True):
        columns.append(part.expand(size, part.shape[-1]).t())
    return torch.cat(columns, dim=1)


# Points among the inputs of a network


def positional_inputs(network: nn.Module) -> int | None:
    """Return how many inputs a network takes by position (None: any number); inputs named as ours are refused."""
    try:
        inputs = inspect.signature(network.forward).parameters
    except (TypeError, ValueError):
        return None
    for name in OWN:
        if name in inputs:
            raise ArgumentError(
                f"the network has an input named {name!r}, which a family's own call takes: wrap the network in a "
                f"module whose forward has another name for it and passes it on, self.network(…, {name}=other)"
            )
    kinds = [each.kind for each in inputs.values()]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return None if inspect.Parameter.VAR_POSITIONAL in kinds else sum(kind in positional for kind in kinds)


def refuse_as_input(args: tuple[Any, ...], shape: Shape, layout: Layout, most: int | None) -> None:
    """Refuse a point among the inputs of a network, where it would pass for one of them."""
    if len(args) > 1 and _reads_as_point(args[1], shape, layout, nested.batch_size(args[0])):
        raise ArgumentError(
            f"family(x, {checks.shown(args[1])}): positions belong to the network's inputs; write "
            "family(x, alpha=…) for a point, and give an input of the network that looks like one by its name"
        )
    if most is not None and len(args) > most:
        raise ArgumentError(
            f"family got {len(args)} inputs by position, the network takes {most}: write family(x, alpha=…) for a point"
        )


def _reads_as_point(value: Any, shape: Shape, layout: Layout, batch: int | None) -> bool:
    """Return whether an input reads as alpha and not as a tensor with one row for each example of the batch."""
    if isinstance(value, Mapping):
        return bool(value) and all(name in layout.layers or name in layout.entries for name in value)
    if isinstance(value, Tensor):
        size: tuple[int, ...] = tuple(value.shape) if value.is_floating_point() else (-1,)
    elif isinstance(value, list | tuple) and all(isinstance(each, int | float) for each in value):
        size, batch = (len(value),), None
    else:
        size = () if isinstance(value, int | float) and not isinstance(value, bool) else (-1,)
    return size == () or (size in (shape.point, (len(layout.layers), *shape.point)) and size[0] != batch)
