"""Optimisers that were made for a network's parameters, given those of its family instead."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.optim import Optimizer

from subspaces.core import checks, functional
from subspaces.core.family import Subspace
from subspaces.errors import ArgumentError

REMEDY = (
    "pass groups=, a function that makes the groups of one network, such as groups=lambda module: "
    "module.configure_optimizers().param_groups, or optimizers=lambda family: SGD(family.parameters(), lr=0.1)"
)


@contextmanager
def standing_in(family: Subspace) -> Iterator[dict[nn.Parameter, str]]:
    """Fill the network of a family with parameters, and yield for each the group of the family that it stands for."""
    vertex = family.vertex(0)  # views: a stand-in takes no memory
    stand_ins: dict[str, nn.Parameter] = {}
    groups: dict[nn.Parameter, str] = {}
    for group in family.layout.groups:
        for entry in group.entries:
            parameter = nn.Parameter(vertex[entry.names[0]])
            stand_ins |= dict.fromkeys(entry.names, parameter)
            groups[parameter] = group.name
    functional.fill(family.template, stand_ins)
    try:
        yield groups
    finally:
        functional.fill(family.template, dict.fromkeys(stand_ins))


def found_in(value: Any) -> list[Optimizer]:
    """Return all optimisers in nested lists, tuples and dicts."""
    if isinstance(value, Optimizer):
        return [value]
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return [each for member in members for each in found_in(member)]


def give(optimizer: Optimizer, family: Subspace, stand_ins: Mapping[nn.Parameter, str]) -> None:
    """Put the family's parameters into an optimiser in the place of those that stand in for them."""
    if optimizer.state:
        raise ArgumentError(
            f"{type(optimizer).__name__} keeps something for each parameter from its beginning, so it cannot be made "
            "for a network and given to its family: pass optimizers=lambda family: …, which makes it for the family"
        )
    for group in optimizer.param_groups:
        members = [each for each in group["params"] if each in stand_ins]
        names = list(dict.fromkeys(stand_ins[each] for each in members))
        for name in names:
            _check_whole(name, {id(each) for each in members}, stand_ins)
        others = [each for each in group["params"] if each not in stand_ins]  # frozen ones are the family's own
        group["params"][:] = [*(family.omega[name] for name in names), *others]
        if "param_names" in group:
            group["param_names"] = [*names, *(f"frozen_{index}" for index in range(len(others)))]


def _check_whole(name: str, members: set[int], stand_ins: Mapping[nn.Parameter, str]) -> None:
    wanted = [each for each, group in stand_ins.items() if group == name]
    missing = [each for each in wanted if id(each) not in members]
    if missing:
        raise ArgumentError(
            f"configure_optimizers gives a group {len(wanted) - len(missing)} of the {len(wanted)} parameters that the "
            f"family keeps together as {checks.shown(name)}, and a family cannot train them apart: {REMEDY}"
        )
