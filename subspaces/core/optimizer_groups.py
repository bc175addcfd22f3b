"""The optimiser groups of a network, as a function makes them that knows nothing of families."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer

from subspaces.core import checks
from subspaces.core.layout import Layout, trainable
from subspaces.errors import ArgumentError
from subspaces.text import nearest

GetGroups = Callable[[Any], Iterable[Any]]
USUAL = ("weights", "others")
"""The groups of a family that was made without `groups=`: the penalised parameters, and the rest."""
EXPECTED = "expected what a torch optimiser takes: dicts {'params': [...], 'lr': …}, or parameters alone"


class Grouped(NamedTuple):
    """The groups that a function made of a network."""

    labels: dict[str, str]
    """The group of each trainable parameter, by each of its names: "group0", "group1", …"""
    options: list[dict[str, Any]]
    """The options of each group."""


def grouped(network: nn.Module, get_groups: GetGroups) -> Grouped:
    """Return the groups of a network, or refuse what a family could not be trained by."""
    names = {id(parameter): aliases for aliases, parameter in trainable(network)}
    frozen = {id(parameter) for parameter in network.parameters()} - names.keys()
    labels: dict[str, str] = {}
    options: list[dict[str, Any]] = []
    for index, group in enumerate(_dicts(get_groups(network))):
        options.append({key: _option(index, key, value) for key, value in group.items() if key not in _PARAMETERS})
        for parameter in _members(index, group["params"]):
            if id(parameter) in frozen:
                continue
            if id(parameter) not in names:
                raise ArgumentError(
                    f"group {index} of groups= holds a tensor of shape {tuple(parameter.shape)}, which is no parameter "
                    "of the network that the function was given: take the parameters from its argument; those of "
                    "other modules go to the optimiser itself, optimizer.add_param_group(…)"
                )
            aliases = names[id(parameter)]
            if labels.get(aliases[0], f"group{index}") != f"group{index}":
                raise ArgumentError(
                    f"parameter {aliases[0]!r} is in {labels[aliases[0]]} and group{index} of groups=: put it in one"
                )
            labels |= dict.fromkeys(aliases, f"group{index}")
    missing = [aliases[0] for aliases in names.values() if aliases[0] not in labels]
    if missing:
        raise ArgumentError(
            f"the trainable parameter {missing[0]!r} is in no group of groups="
            f"{f' (and {len(missing) - 1} more)' if len(missing) > 1 else ''}: put it in one, or freeze it with "
            "requires_grad_(False) if it shall not be trained"
        )
    return Grouped(labels, options)


def parameter_groups(
    layout: Layout, omega: nn.ParameterDict, made: list[dict[str, Any]] | None, options: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the groups of a family, `made` by `groups=` or not, with further options by their name."""
    there = list(dict.fromkeys(group.label for group in layout.groups))
    labels = there if made is None else [f"group{index}" for index in range(len(made))]
    known = USUAL if made is None else labels
    for name, given in options.items():
        if name not in known:
            raise ArgumentError(f"parameter_groups({name}=…): no group of that name; {nearest(name, known)}")
        if not isinstance(given, Mapping):
            raise ArgumentError(f"parameter_groups({name}={checks.shown(given)}): expected a dict of options")
        if taken := [key for key in _PARAMETERS if key in given]:
            raise ArgumentError(f"parameter_groups({name}={{{taken[0]!r}: …}}): expected options, such as 'lr', only")
    found = []
    for index, label in enumerate(labels):
        rows = [omega[group.name] for group in layout.groups if group.label == label]
        found.append({"params": rows, **(made[index] if made is not None else {}), **options.get(label, {})})
    return found


_PARAMETERS = ("params", "param_names")


def _dicts(found: Any) -> list[dict[str, Any]]:
    """Return groups as dicts, whatever form torch takes them in."""
    if isinstance(found, Optimizer):
        raise ArgumentError(f"groups= returned a {type(found).__name__}: return its groups, optimizer.param_groups")
    if isinstance(found, (Tensor, Mapping, str)) or not isinstance(found, Iterable):
        raise ArgumentError(f"groups= returned {_shown(found)}: {EXPECTED}")
    groups = list(found)
    if groups and not isinstance(groups[0], dict):
        groups = [{"params": groups}]
    for index, group in enumerate(groups):
        if not isinstance(group, dict) or "params" not in group:
            raise ArgumentError(f"group {index} of groups= is {_shown(group)}: {EXPECTED}")
    return groups


def _members(index: int, params: Any) -> list[Tensor]:
    """Return the parameters of a group: one, several, or several with their names."""
    if isinstance(params, (str, Mapping)) or not isinstance(params, Iterable):
        raise ArgumentError(f"'params' of group {index} of groups= is {_shown(params)}: {EXPECTED}")
    members = [params] if isinstance(params, Tensor) else list(params)
    members = [each[1] if isinstance(each, tuple) and len(each) == 2 else each for each in members]
    for each in members:
        if not isinstance(each, Tensor):
            raise ArgumentError(f"'params' of group {index} of groups= holds {_shown(each)}: {EXPECTED}")
    return members


def _option(index: int, key: Any, value: Any) -> Any:
    """Return an option that a file of the family can hold too."""
    if isinstance(key, str) and (value is None or isinstance(value, (bool, int, float, str))):
        return value
    if isinstance(key, str) and isinstance(value, Tensor) and value.numel() == 1:
        return value
    if isinstance(key, str) and isinstance(value, (tuple, list)):
        return type(value)([_option(index, key, each) for each in value])
    raise ArgumentError(
        f"option {key!r} of group {index} of groups= is {_shown(value)}: expected a number, text, True, False, None, "
        "or several of these; what else an optimiser takes can be set on family.parameter_groups()"
    )


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, (Tensor, nn.Module)) else checks.shown(value)
