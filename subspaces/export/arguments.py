"""What a user passes to an export: the points of a family, and a few inputs of the network as an example."""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from subspaces.core import checks
from subspaces.core._compat import pytree
from subspaces.core.alpha import to_alpha
from subspaces.core.selection import shown
from subspaces.core.shapes import Bezier, Line, Shape, Simplex
from subspaces.errors import ArgumentError
from subspaces.export import ExportError
from subspaces.export.description import Kind

NAMES = ("midpoint", "selected", "ensemble", "family")
PAIR = (0.1, 0.9)  # of a line or curve, as evaluation measures it
Point = str | float | Sequence[Any] | Tensor
"""A name, a number, coordinates, several points that are averaged, or a tensor with a point for each layer."""
EXPECTED = "a few inputs of the network, such as torch.rand(16, 3, 32, 32), a tuple of tensors, or a dict of them"


# Points


@dataclass(frozen=True)
class Chosen:
    """The points whose networks are exported."""

    kind: Kind  # one network, several that are averaged, or all points, with alpha as an input
    words: str  # what they are called
    alphas: tuple[Any, ...] = ()  # numbers, coordinates, or points for each layer by name; none without a family
    note: str = ""  # for the card


def choose(point: Any, shape: Shape, layers: int, middle: str = "midpoint") -> Chosen:
    """Return the points of a family of so many layers that a user names; `middle` is what its midpoint is called."""
    name = point if isinstance(point, str) else ""
    if name == "midpoint":
        return Chosen("network", middle, (0.0 if shape.vertices == 1 else shape.midpoint().tolist(),))
    if shape.vertices == 1:
        raise ExportError(f"point={checks.shown(point)}: there is one network only; expected 'midpoint'")
    if name == "family":
        if not isinstance(shape, (Line, Bezier, Simplex)):
            raise ExportError(
                f"point='family': expected a Line, Bezier or Simplex, and {shape} is none; give one point"
            )
        return Chosen("family", f"every point of {shape}")
    if name == "selected":
        raise ExportError("point='selected': a run keeps what was selected; expected family.select(…).alpha")
    if name == "ensemble":
        return together(torch.eye(shape.vertices).tolist() if shape.point else PAIR)
    if isinstance(point, Tensor) and point.shape == (layers, *shape.point):
        return Chosen("network", "a point for each layer", (point.tolist(),))
    found = point.tolist() if isinstance(point, Tensor) else point
    parts = list(found) if checks.listed(found) else [found]
    if shape.point and parts and not any(isinstance(each, str) or checks.listed(each) for each in parts):
        parts = [parts]  # the coordinates of one point
    alphas = [_alpha(each, shape) for each in parts]
    if not alphas:
        raise ArgumentError(f"point={checks.shown(point)}: expected one point or more, each {shape.domain}")
    if len(alphas) == layers > 1 and not isinstance(parts[0], str):
        raise ArgumentError(
            f"point={checks.shown(point)}: as many points as layers; pass torch.tensor(point) for one in each layer, "
            "or export family.ensemble(points), which averages them"
        )
    return together(alphas) if len(alphas) > 1 else Chosen("network", f"the point {shown(alphas[0])}", tuple(alphas))


def together(alphas: Sequence[Any], words: str = "") -> Chosen:
    """Return several points that are averaged."""
    words = words or f"ensemble of {' and '.join(map(shown, alphas)) if len(alphas) < 4 else f'{len(alphas)} points'}"
    return Chosen("ensemble", words, tuple(alphas))


def _alpha(value: Any, shape: Shape) -> Any:
    """Return a point as a number or as coordinates."""
    try:
        found = [float(part) for part in value.split(",")] if isinstance(value, str) else value
        if isinstance(found, (bool, bytes)):
            raise ValueError
        alpha = to_alpha(found, shape, shape.midpoint().double(), outside=False)
        return alpha.reshape(shape.point).tolist()
    except (ValueError, TypeError, RuntimeError):
        example = ",".join([f"{1 / shape.vertices:.2g}"] * shape.vertices) if shape.point else "0.3"
        raise ArgumentError(
            f"point={checks.shown(value)}: not a point of {shape}; expected {', '.join(map(repr, NAMES))}, or "
            f"{shape.domain}, such as {example}"
        ) from None


# Examples


@dataclass(frozen=True)
class Inputs:
    """An example of a network's inputs: its tensors, in order, with the names of the arguments that they are in."""

    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    form: Any  # of the arguments and keyword arguments, in which the tensors are the leaves

    @classmethod
    def of(cls, network: nn.Module, example: Any) -> Self:
        """Return an example of a network's inputs, checked: one tensor, a tuple or list, or a dict by keyword."""
        keyword = isinstance(example, Mapping)
        args = () if keyword else tuple(example) if isinstance(example, (tuple, list)) else (example,)
        try:
            signature = inspect.signature(network.forward)
            bound = signature.bind(*args, **(example if keyword else {}))
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"example= does not fit the inputs of {type(network).__name__} ({error}): expected {EXPECTED}"
            ) from None
        leaves, form = pytree.tree_flatten((bound.args, bound.kwargs))
        _check(example, leaves)
        arguments = dict(bound.arguments)
        for each in signature.parameters.values():
            if each.kind is inspect.Parameter.VAR_KEYWORD:
                arguments |= arguments.pop(each.name, {})
        names = unique(name for name, _ in named_leaves(arguments))
        if len(names) == 1 and not keyword and leaves[0].ndim == 4 and leaves[0].is_floating_point():
            names = ("images",)
        return cls(names, tuple(each.detach().cpu().contiguous() for each in leaves), form)

    def arguments(self, tensors: Iterable[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments and keyword arguments of the network that hold these tensors."""
        args, kwargs = pytree.tree_unflatten(list(tensors), self.form)
        return args, kwargs

    @property
    def count(self) -> int:
        """The number of examples: the first length of the first tensor that has any."""
        return next(len(each) for each in self.tensors if each.ndim)

    @property
    def batched(self) -> list[int | None]:
        """The dimension of the batch in each tensor: the first one of its length, None where there is none."""
        return [next((dim for dim, size in enumerate(each.shape) if size == self.count), None) for each in self.tensors]

    def resized(self) -> tuple[Tensor, ...]:
        """Return one example of several, or two of one."""
        return tuple(
            x if dim is None else x.narrow(dim, 0, 1).contiguous() if self.count > 1 else torch.cat([x, x], dim)
            for x, dim in zip(self.tensors, self.batched, strict=True)
        )

    def __str__(self) -> str:
        pairs = zip(self.names, self.tensors, strict=True)
        return ", ".join(f"{name} of shape {tuple(each.shape)} and {each.dtype}" for name, each in pairs)


def named_leaves(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return what nested containers hold, with the keys, fields and places that lead there as names: `name_0_key`."""
    found, _ = pytree.tree_flatten_with_path(dict(value) if isinstance(value, Mapping) else value)
    return [(re.sub(r"\W+", "_", prefix + pytree.keystr(path)).strip("_"), leaf) for path, leaf in found]


def unique(names: Iterable[str], taken: Sequence[str] = ()) -> tuple[str, ...]:
    """Return names as identifiers, each of them once."""
    found = list(taken)
    for name in names:
        base = re.sub(r"\W|^(?=\d)", "_", name) or "output"
        numbered = (f"{base}_{number}" for number in range(1, len(found) + 1))
        found.append(next(each for each in (base, *numbered) if each not in found))
    return tuple(found[len(taken) :])


def _check(example: Any, leaves: Sequence[Any]) -> None:
    if not any(isinstance(each, Tensor) and each.ndim for each in leaves):
        raise ArgumentError(f"example={checks.shown(example)}: expected {EXPECTED}")
    for each in leaves:
        if not isinstance(each, Tensor):
            raise ArgumentError(f"example has {checks.shown(each)}: expected tensors alone; give constants a default")
        if each.layout != torch.strided or each.is_meta or not each.numel():
            raise ArgumentError(f"example has a tensor of shape {tuple(each.shape)}, {each.dtype}: expected {EXPECTED}")
