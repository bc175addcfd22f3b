"""The inputs of a network as named tensors: what a program takes, from the example that it is made with."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from subspaces.core import checks, nested
from subspaces.errors import ArgumentError

EXPECTED = (
    "a few inputs of the network as it is to be called, such as torch.rand(16, 3, 32, 32), a tuple of inputs or a dict "
    "of them by name"
)
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Inputs:
    """The arguments of a network, in which tensors have names; everything else in them is a constant.

    Args:
        args, kwargs: the arguments of a call.
        names: of all tensors in them, in order: the argument's name, and of those in a tuple or dict the name with
            their place or key, `state_0`.
        keyword: whether a program is called with these names, as the example was a dict.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: tuple[str, ...]
    keyword: bool = False

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
        kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
        named_all = [
            named
            for name, each in bound.arguments.items()
            for named in named_tensors(each, "" if kinds[name] is inspect.Parameter.VAR_KEYWORD else name)
        ]
        names, first = unique(name for name, _ in named_all), named_all[0][1]
        if len(names) == 1 and not keyword and first.ndim == 4 and first.is_floating_point():
            names = ("images",)
        made = cls(bound.args, bound.kwargs, names, keyword)
        found = [each.detach().cpu().contiguous() for each in made.tensors]
        return made.holding([each.float() if each.dtype in HALF else each for each in found])

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors of the example."""
        return nested.tensors((self.args, self.kwargs))

    def holding(self, tensors: Sequence[Tensor]) -> Self:
        """Return the same arguments with other tensors in them."""
        left = iter(tensors)
        args, kwargs = nested.apply(lambda _: next(left), (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs)

    def floats(self, dtype: torch.dtype) -> Self:
        """Return the same with all floating-point tensors in one dtype."""
        return self.holding([each.to(dtype) if each.is_floating_point() else each for each in self.tensors])

    @property
    def count(self) -> int:
        """The number of examples: the first length of the first tensor that has any."""
        return next(len(each) for each in self.tensors if each.ndim)

    @property
    def batched(self) -> list[int | None]:
        """The dimension of the batch in each tensor: the first one of its length, None where there is none."""
        return [next((dim for dim, size in enumerate(each.shape) if size == self.count), None) for each in self.tensors]

    def resized(self) -> Self:
        """Return one example of several, or two of one."""

        def part(tensor: Tensor, dim: int | None) -> Tensor:
            if dim is None:
                return tensor
            return tensor.narrow(dim, 0, 1).contiguous() if self.count > 1 else torch.cat([tensor, tensor], dim)

        return self.holding([part(each, dim) for each, dim in zip(self.tensors, self.batched, strict=True)])

    def described(self) -> str:
        """Return names, shapes and types, for an error."""
        pairs = zip(self.names, self.tensors, strict=True)
        return ", ".join(f"{name} of shape {tuple(each.shape)} and {each.dtype}" for name, each in pairs)


def named_tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in nested containers with names: `name`, `name_0`, `name_key`, or `key` where it is empty."""
    if isinstance(value, Tensor):
        yield name, value
        return
    parts = nested.children(value) or []
    keys: Any = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", range(len(parts)))
    keys = value if isinstance(value, Mapping) else keys
    for key, each in zip(keys, parts, strict=True):
        yield from named_tensors(each, f"{name}_{key}" if name else str(key))


def unique(names: Iterable[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """Return names as identifiers, each of them once."""
    found: list[str] = list(taken)
    first = len(found)
    for name in names:
        base = re.sub(r"\W", "_", name) or "output"
        base = f"_{base}" if base[0].isdigit() else base
        tried, number = base, 1
        while tried in found:
            tried, number = f"{base}_{number}", number + 1
        found.append(tried)
    return tuple(found[first:])


def form(tensor: Tensor, other: Tensor | None) -> str:
    """Return type and shape of a tensor, with n for each length that `other`, of another batch, does not share."""
    lengths = tensor.shape if other is None or other.ndim != tensor.ndim else other.shape
    sizes = ("n" if a != b else str(a) for a, b in zip(tensor.shape, lengths, strict=True))
    return f"{str(tensor.dtype).removeprefix('torch.')} [{', '.join(sizes)}]"


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
