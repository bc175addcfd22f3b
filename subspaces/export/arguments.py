"""What a user passes to an export: the points of a family, and a few inputs of the network as an example."""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from subspaces.core import checks, nested
from subspaces.core.alpha import to_alpha
from subspaces.core.selection.selection import shown
from subspaces.core.shapes import Bezier, Line, Shape, Simplex
from subspaces.errors import ArgumentError
from subspaces.export import ExportError
from subspaces.export.metadata import Kind

NAMES = ("midpoint", "selected", "ensemble", "family")
PAIR = (0.1, 0.9)  # of a line or curve, as evaluation measures it
Point = str | float | Sequence[Any] | Mapping[str, Any] | Tensor
"""A name, a number, coordinates, a point for each layer, or several points that are averaged."""
EXPECTED = (
    "a few inputs of the network as it is to be called, such as torch.rand(16, 3, 32, 32), a tuple of inputs or a dict "
    "of them by name"
)
HALF = (torch.float16, torch.bfloat16)


# Points


@dataclass(frozen=True)
class Chosen:
    """The points whose networks are exported."""

    kind: Kind  # one network, several that are averaged, or all points, with alpha as an input
    words: str  # what they are called
    short: str = ""  # the same, in the name of a file
    alphas: tuple[Any, ...] = ()  # numbers, coordinates, or points for each layer by name; none without a family
    note: str = ""  # for the card


def choose(point: Any, shape: Shape, middle: str = "midpoint") -> Chosen:
    """Return the points that a user names; `middle` is what the midpoint of the family is called."""
    name = point if isinstance(point, str) else ""
    if name == "midpoint":
        return Chosen("network", middle, name, (0.0 if shape.vertices == 1 else shape.midpoint().tolist(),))
    if shape.vertices == 1:
        raise ExportError(f"point={checks.shown(point)}: there is one network only; expected 'midpoint'")
    if name == "family":
        if not isinstance(shape, (Line, Bezier, Simplex)):
            raise ExportError(
                f"point='family': expected a Line, Bezier or Simplex, and {shape} is none; give one point"
            )
        return Chosen("family", f"every point of {shape}", name)
    if name == "selected":
        raise ExportError("point='selected': a run keeps what was selected; expected family.select(…).alpha")
    if name == "ensemble":
        return together(torch.eye(shape.vertices).tolist() if shape.point else PAIR)
    if isinstance(point, Mapping) and point:
        return Chosen("network", "a point for each layer", "layers", (dict(point),))
    alphas = [_alpha(each, shape) for each in _several(point, shape)]
    if not alphas:
        raise ArgumentError(f"point={checks.shown(point)}: expected one point or more, each {shape.domain}")
    if len(alphas) > 1:
        return together(alphas)
    short = "-".join(f"{x:g}" for x in (alphas[0] if shape.point else alphas))
    return Chosen("network", f"the point {shown(alphas[0])}", f"at-{short}", tuple(alphas))


def together(alphas: Sequence[Any], words: str = "") -> Chosen:
    """Return several points that are averaged."""
    words = words or f"ensemble of {' and '.join(map(shown, alphas)) if len(alphas) < 4 else f'{len(alphas)} points'}"
    return Chosen("ensemble", words, f"ensemble-of-{len(alphas)}", tuple(alphas))


def _several(point: Any, shape: Shape) -> list[Any]:
    found = point.tolist() if isinstance(point, Tensor) else point
    if not checks.listed(found):
        return [found]
    alone = shape.point and len(found) and not any(isinstance(each, str) or checks.listed(each) for each in found)
    return [found] if alone else list(found)


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
    """The arguments of a network, in which tensors have names; everything else in them is a constant."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: tuple[str, ...]  # of all tensors, in order: the argument's, and for those within one `state_0`, `state_key`
    keyword: bool = False  # whether a program is called with these names, as the example was a dict

    @classmethod
    def of(cls, network: nn.Module, example: Any) -> Self:
        """Return an example of a network's inputs, checked: one tensor, a tuple or list, or a dict by keyword."""
        keyword = isinstance(example, Mapping)
        args = () if keyword else tuple(example) if isinstance(example, (tuple, list)) else (example,)
        _check(example, nested.tensors(args or dict(example)))
        try:
            signature = inspect.signature(network.forward)
            bound = signature.bind(*args, **(example if keyword else {}))
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"example= does not fit the inputs of {type(network).__name__} ({error}): expected {EXPECTED}"
            ) from None
        collects = [each.name for each in signature.parameters.values() if each.kind is inspect.Parameter.VAR_KEYWORD]
        found = named_tensors({name: each for name, each in bound.arguments.items() if name not in collects})
        found += [pair for name in collects for pair in named_tensors(bound.arguments.get(name, {}))]
        names, first = unique(name for name, _ in found), found[0][1]
        if len(names) == 1 and not keyword and first.ndim == 4 and first.is_floating_point():
            names = ("images",)
        made = cls(bound.args, bound.kwargs, names, keyword)
        tensors = [each.detach().cpu().contiguous() for each in made.tensors]
        return made.holding([each.float() if each.dtype in HALF else each for each in tensors])

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors of the example."""
        return nested.tensors((self.args, self.kwargs))

    @property
    def count(self) -> int:
        """The number of examples: the first length of the first tensor that has any."""
        return next(len(each) for each in self.tensors if each.ndim)

    @property
    def batched(self) -> list[int | None]:
        """The dimension of the batch in each tensor: the first one of its length, None where there is none."""
        return [next((dim for dim, size in enumerate(each.shape) if size == self.count), None) for each in self.tensors]

    def holding(self, tensors: Iterable[Tensor]) -> Self:
        """Return the same arguments with other tensors in them."""
        left = iter(tensors)
        args, kwargs = nested.apply(lambda _: next(left), (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs)

    def floats(self, dtype: torch.dtype) -> Self:
        """Return the same with all floating-point tensors in one dtype."""
        return self.holding(each.to(dtype) if each.is_floating_point() else each for each in self.tensors)

    def resized(self) -> Self:
        """Return one example of several, or two of one."""

        def part(tensor: Tensor, dim: int | None) -> Tensor:
            if dim is None:
                return tensor
            return tensor.narrow(dim, 0, 1).contiguous() if self.count > 1 else torch.cat([tensor, tensor], dim)

        return self.holding(map(part, self.tensors, self.batched))

    def __str__(self) -> str:
        pairs = zip(self.names, self.tensors, strict=True)
        return ", ".join(f"{name} of shape {tuple(each.shape)} and {each.dtype}" for name, each in pairs)


def named_tensors(value: Any, name: str = "") -> list[tuple[str, Tensor]]:
    """Return the tensors in nested containers with names: `name`, `name_0`, `name_key`, or `key` where it is empty."""
    if isinstance(value, Tensor):
        return [(name, value)]
    parts = nested.children(value) or []
    fields: Any = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", range(len(parts)))
    keys = value if isinstance(value, Mapping) else fields
    named = ((f"{name}_{key}" if name else str(key), part) for key, part in zip(keys, parts, strict=True))
    return [pair for label, part in named for pair in named_tensors(part, label)]


def unique(names: Iterable[str], taken: Sequence[str] = ()) -> tuple[str, ...]:
    """Return names as identifiers, each of them once."""
    found = list(taken)
    for name in names:
        base = re.sub(r"\W|^(?=\d)", "_", name) or "output"
        numbered = (f"{base}_{number}" for number in range(1, len(found) + 1))
        found.append(next(each for each in (base, *numbered) if each not in found))
    return tuple(found[len(taken) :])


def _check(example: Any, tensors: Sequence[Tensor]) -> None:
    """Refuse an example without numbers; among several tensors a mask that is added may well hold infinity."""
    if not any(each.ndim for each in tensors):
        raise ArgumentError(f"example={checks.shown(example)}: expected {EXPECTED}")
    for each in tensors:
        odd = each.layout != torch.strided or each.is_meta or not each.numel()
        finite = odd or bool((each.isfinite() if len(tensors) == 1 else ~each.isnan()).all())
        if odd or not finite:
            there = f"a tensor of shape {tuple(each.shape)} and {each.dtype}{'' if finite else ' with NaN or infinity'}"
            raise ArgumentError(f"example has {there}: expected {EXPECTED}")
