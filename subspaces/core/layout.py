"""Where each parameter of a network lies in the flat rows of Omega.

All trainable parameters of one group are one row of numbers. Each keeps the memory order it had (a channels-last weight
stays channels-last), so the row is cut into named tensors by views alone.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

Predicate = Callable[[str, nn.Parameter], bool]


def is_weight(name: str, parameter: nn.Parameter) -> bool:
    """Return whether a parameter is a weight: all but biases and the scales and shifts of norms."""
    return parameter.ndim > 1


@dataclass(frozen=True)
class Entry:
    """One trainable parameter."""

    names: tuple[str, ...]  # more than one where weights are tied
    layer: int
    shape: tuple[int, ...]
    order: tuple[int, ...]  # its dimensions, outermost in memory first
    numel: int = field(init=False)
    flat: bool = field(init=False)
    row_major: bool = field(init=False)

    def __post_init__(self) -> None:  # once: a step of training asks for each entry
        object.__setattr__(self, "numel", math.prod(self.shape))
        object.__setattr__(self, "flat", len(self.shape) == 1)
        object.__setattr__(self, "row_major", self.order == tuple(range(len(self.shape))))

    def flatten(self, value: Tensor) -> Tensor:
        """Return the numbers of `value` in the order of the row: [*shape] -> [numel]."""
        return value.permute(self.order).reshape(self.numel)

    def restore(self, row: Tensor) -> Tensor:
        """Return the view of `row` that has this parameter's shape: [numel] -> [*shape]."""
        inner = row.view(tuple(self.shape[i] for i in self.order))
        return inner.permute(tuple(self.order.index(i) for i in range(len(self.order))))


@dataclass(frozen=True)
class Group:
    """Parameters that lie together in one matrix [m, n]: one dtype, penalised or not."""

    name: str
    label: str
    penalised: bool
    castable: bool  # by autocast where their layers use them: the weights of linear layers and convolutions
    entries: tuple[Entry, ...]
    sizes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(entry.numel for entry in self.entries))

    def pack(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the row that holds the named parameters."""
        return torch.cat([entry.flatten(parameters[entry.names[0]].detach()) for entry in self.entries])

    def unpack(self, row: Tensor) -> dict[str, Tensor]:
        """Return the named views of a row."""
        found = {}
        for entry, part in zip(self.entries, row.split_with_sizes(self.sizes), strict=True):
            view = part if entry.flat else part.view(entry.shape) if entry.row_major else entry.restore(part)
            for name in entry.names:
                found[name] = view
        return found


@dataclass(frozen=True)
class Layout:
    """All groups of a network, and its layers: the modules that directly own trainable parameters."""

    groups: tuple[Group, ...]
    layers: tuple[str, ...]

    @property
    def entries(self) -> dict[str, Entry]:
        """Every parameter by each of its names."""
        return {name: entry for group in self.groups for entry in group.entries for name in entry.names}

    @classmethod
    def of(
        cls, module: nn.Module, penalised: Predicate = is_weight, labels: Mapping[str, str] | None = None
    ) -> "Layout":
        """Lay out the trainable parameters of `module`; `labels` has the optimiser group of each."""
        members: dict[tuple[str, ...], list[Entry]] = {}
        layers: list[str] = []
        for names, parameter in trainable(module):
            layer = names[0].rpartition(".")[0]
            if layer not in layers:
                layers.append(layer)
            penalise, castable = penalised(names[0], parameter), _castable(module, names)
            label = labels[names[0]] if labels is not None else "weights" if penalise else "others"
            entry = Entry(names, layers.index(layer), tuple(parameter.shape), _memory_order(parameter))
            dtype = str(parameter.dtype).removeprefix("torch.")
            key = (label, dtype, "penalised" if penalise else "free", "layers" if castable else "rest")
            members.setdefault(key, []).append(entry)
        groups = [
            Group(_unique(key, members), key[0], key[2] == "penalised", key[3] == "layers", tuple(entries))
            for key, entries in members.items()
        ]
        return cls(tuple(groups), tuple(layers))


_CAST = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def _castable(module: nn.Module, names: tuple[str, ...]) -> bool:
    """Return whether autocast would cast this parameter in its layer, so that all such can be cast at once."""
    places = [name.rpartition(".") for name in names]
    return all(type(module.get_submodule(owner)) in _CAST and key == "weight" for owner, _, key in places)


def trainable(module: nn.Module) -> Iterable[tuple[tuple[str, ...], nn.Parameter]]:
    """Yield each trainable parameter once, with all names it has in the `state_dict`."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            names.setdefault(parameter, []).append(name)
    return ((tuple(aliases), parameter) for parameter, aliases in names.items())


def _memory_order(parameter: nn.Parameter) -> tuple[int, ...]:
    """Return the dimensions from the widest stride to the narrowest (row-major where they tie)."""
    strides = parameter.stride()
    return tuple(sorted(range(len(strides)), key=lambda i: (-strides[i], i)))


def _unique(key: tuple[str, ...], keys: Iterable[tuple[str, ...]]) -> str:
    """Return the label of a group, with what sets it apart added where the label alone is not unique."""
    columns = zip(*(other for other in keys if other[0] == key[0]), strict=True)
    return "_".join(word for word, column in zip(key, columns, strict=True) if word == key[0] or len(set(column)) > 1)
