"""The inputs of a network as named tensors: what a program takes, from the example that it is made with."""

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
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
