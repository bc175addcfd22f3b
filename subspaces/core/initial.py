"""The networks that a new family starts from, and the optimiser groups of one of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import ParametrizationList
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.optim import Optimizer

from subspaces.core import _compat, checks, functional, memory
from subspaces.core.layout import trainable
from subspaces.core.shapes import Shape
from subspaces.errors import ArgumentError

Factory = Callable[[], nn.Module]
Init = Literal["independent", "point"]
GetGroups = Callable[[Any], Iterable[Any]]
OFFSET = 0.1
"""How far vertices that start at one network are from it, relative to each weight."""


def check_start(network: object, init: Init | None, offset: float | None) -> tuple[Init, float]:
    """Return how the vertices start and how far apart: drawn by a factory, or at a module with steps away from it."""
    is_module = isinstance(network, nn.Module)
    if init not in (None, "independent", "point"):
        raise ArgumentError(f"init={checks.shown(init)}: expected 'independent' or 'point'")
    if is_module and init == "independent":
        raise ArgumentError(
            "init='independent' with a module, which is where all vertices start: pass a function that makes the "
            "network, Subspace(lambda: MyNet(…), shape), to draw every vertex anew, or leave init out"
        )
    init = init or ("point" if is_module else "independent")
    if offset is None:
        return init, OFFSET if init == "point" else 0.0
    if checks.number("offset", offset) < 0 or (offset and init != "point"):
        raise ArgumentError(
            f"offset={checks.shown(offset)}: expected a number of at least 0, and a module or init='point' with it"
        )
    return init, float(offset)


def initial_networks(network: nn.Module | Factory, count: int, init: Init) -> list[nn.Module]:
    """Return `count` networks of one architecture: independent ones, or the same one for "point".

    What the user holds is never changed: the first network is a copy, and the others are new.
    """
    first = network if isinstance(network, nn.Module) else _made(network)
    _check_supported(first)
    _check_memory(first, count if init == "point" else 2 * count)
    others = [first if init == "point" else _made(network) for _ in range(count - 1)]
    if init != "point":
        if len({id(other) for other in [first, *others]}) < count:
            raise ArgumentError("the factory returned the same module twice: it must make a new one at each call")
        _check_same([first, *others])
    return [functional.copied(first), *others]


def _made(factory: Any) -> nn.Module:
    if not callable(factory):
        raise ArgumentError(
            f"Subspace got a {type(factory).__name__}: expected an nn.Module or a function that makes one"
        )
    module = factory()
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"the factory returned a {type(module).__name__}: expected an nn.Module")
    return module


def given_networks(modules: Iterable[nn.Module], shape: Shape) -> list[nn.Module]:
    """Return existing networks as a list, one for each vertex."""
    if not isinstance(modules, Iterable):
        raise ArgumentError(f"from_modules got a {type(modules).__name__}: expected a list of modules, one per vertex")
    networks = list(modules)
    if len(networks) != shape.vertices:
        raise ArgumentError(f"from_modules got {len(networks)} networks: {shape} has {shape.vertices} vertices")
    for index, network in enumerate(networks):
        if not isinstance(network, nn.Module):
            raise ArgumentError(f"network {index} is a {type(network).__name__}: expected an nn.Module")
        _check_supported(network)
    return networks


def _check_memory(module: nn.Module, count: int) -> None:
    """Refuse more rows and networks than the machine could ever hold, before they are made one by one."""
    weights = [p for p in module.parameters() if p.requires_grad and p.device.type == "cpu"]
    needed = count * sum(p.numel() * p.element_size() for p in weights)  # a row of Omega for each vertex, and networks
    if count > 4 and needed > memory.total():
        raise MemoryError(
            f"vertices of {sum(p.numel() for p in weights):,} weights need {needed / 1e9:.3g} GB of the "
            f"{memory.total() / 1e9:.3g} that there are: choose a shape with fewer vertices"
        )


def _check_supported(module: nn.Module) -> None:
    """Refuse what cannot be in a subspace."""
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise ArgumentError("the network has lazy parameters without a shape: run it once on a batch first")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ArgumentError("the network has no trainable parameters, so there is nothing to make a subspace of")
    for name, part in module.named_modules():
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.sparse:
            raise ArgumentError(
                f"embedding {name!r} has sparse gradients, which a subspace cannot mix: pass sparse=False"
            )
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.max_norm is not None:
            raise ArgumentError(f"embedding {name!r} has max_norm, which changes weights in place: pass max_norm=None")
        if _has_spectral_norm(part):
            raise ArgumentError(
                f"part {name!r} has spectral_norm, whose buffers are the singular vectors of one set of weights and "
                "belong to no point of a family: remove it, freeze its weight, or use weight_norm"
            )
    for name, parameter in module.named_parameters():
        hooked = parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
        if parameter.requires_grad and hooked:
            raise ArgumentError(
                f"parameter {name!r} has a gradient hook, which a family cannot keep: remove it from the network, and "
                "register it on the tensors of family.omega (the gradients of all vertices), or in each step on the "
                "network inside `with family.point() as net:`"
            )


def _has_spectral_norm(part: nn.Module) -> bool:
    """Return whether a part has a trainable weight with spectral norm, of the new or the old style."""
    if isinstance(part, ParametrizationList) and any(isinstance(each, _compat.SpectralNorm) for each in part):
        return any(parameter.requires_grad for parameter in part.parameters())
    hooks = (hook for hook in part._forward_pre_hooks.values() if isinstance(hook, SpectralNorm))
    return any(getattr(part, f"{hook.name}_orig").requires_grad for hook in hooks)


def offsets(weight: Tensor, middle: Tensor, size: float, generator: torch.Generator) -> Tensor:
    """Return what sets m vertices apart that start at a weight, [m, *shape], so that their midpoint stays there.

    d_i = s_i - sum_j c_j s_j, with random steps s_i that are orthogonal to the weight and to each other and `size`
    times as long as it, and the coefficients c of the midpoint. Where there is no room for that they are zero.

    Args:
        weight: of the network that all vertices start at.
        middle: the coefficients of the midpoint, [m].
        size: of the steps, relative to the weight.
        generator: draws the steps.
    """
    count = len(middle)
    real = torch.view_as_real(weight.detach()) if weight.is_complex() else weight.detach()
    row = real.flatten()
    if row.is_meta or row.numel() <= count or not bool(row.any()):
        return weight.detach().new_zeros(count, *weight.shape)
    draws = torch.randn(row.numel(), count, generator=generator).to(row.device)
    exact = torch.promote_types(row.dtype, torch.float32)
    directions: Tensor = torch.linalg.qr(torch.cat([row[:, None], draws.to(exact)], 1).to(exact))[0][:, 1:]
    steps = size * row.to(exact).norm() * directions.T
    steps = (steps - middle.to(steps) @ steps).to(row.dtype).view(count, *real.shape)
    return torch.view_as_complex(steps.contiguous()) if weight.is_complex() else steps


def _check_same(networks: Sequence[nn.Module]) -> None:
    """Refuse networks of other architectures, or with other values in what a family shares."""
    first = _described(networks[0])
    for index, network in enumerate(networks[1:], 1):
        if difference := _difference(first, _described(network)):
            raise ArgumentError(f"network {index} does not match network 0: {difference}")
    pruned = {name for name, _ in networks[0].named_parameters()}

    def shared(name: str) -> bool:
        masked = name.removeprefix("buffer ").removesuffix("_mask") if name.endswith("_mask") else ""
        return not name.startswith("buffer ") or f"{masked}_orig" in pruned

    if found := _differing(networks, shared):
        index, name, value = found
        remedy = "make it trainable, or " if isinstance(value, nn.Parameter) else ""
        raise ArgumentError(
            f"{name} of network {index} differs from network 0: frozen parameters and masks of pruned weights "
            f"are shared by the whole family; {remedy}give all networks the same values"
        )


def _described(module: nn.Module) -> dict[str, str]:
    """Return what each parameter and buffer is, in words."""
    described: dict[str, str] = {}
    names: dict[nn.Parameter, str] = {}
    for name, p in module.named_parameters(remove_duplicate=False):
        tie = "" if names.setdefault(p, name) == name else f", tied to {names[p]}"
        trainable = "trainable" if p.requires_grad else "frozen"
        described[f"parameter {name}"] = f"{tuple(p.shape)} {p.dtype} on {p.device}, {trainable}{tie}"
    buffers = module.named_buffers(remove_duplicate=False)
    return described | {f"buffer {name}": f"{tuple(b.shape)} {b.dtype}" for name, b in buffers}


def _difference(first: Mapping[str, str], other: Mapping[str, str]) -> str | None:
    for name in (name for name in [*first, *other] if first.get(name) != other.get(name)):
        found, expected = other.get(name, "missing"), first.get(name, "none of that name")
        return f"{name} is {found}, expected {expected}; all must have the same architecture"
    return None


def _differing(
    networks: Sequence[nn.Module], wanted: Callable[[str], bool] = lambda name: True
) -> tuple[int, str, Tensor] | None:
    """Return the first thing that networks should share and do not: which network, its name and its value there."""

    def shared(network: nn.Module) -> dict[str, Tensor]:
        frozen = {f"frozen parameter {name}": p for name, p in network.named_parameters() if not p.requires_grad}
        return frozen | {f"buffer {name}": value for name, value in network.named_buffers()}

    first = shared(networks[0])
    for index, network in enumerate(networks[1:], 1):
        for name, value in shared(network).items():
            if wanted(name) and not torch.equal(value, first[name]):
                return index, name, value
    return None


def applied(function: Callable[[nn.Module], None], networks: Sequence[nn.Module]) -> None:
    """Apply a function to the networks of all vertices, or refuse one that changes what a family is made of."""
    before = _described(networks[0])
    for network in networks:
        network.apply(function)
        if difference := _difference(before, _described(network)):
            raise ArgumentError(
                f"apply: the function changed which parameters there are, or are trained: {difference}; change the "
                "network before it becomes a family, in the function that makes it"
            )
    if found := _differing(networks):
        raise ArgumentError(
            f"apply: {found[1]} is shared by all vertices, and the function gave it other values at each of them: let "
            "the function leave it alone, or set it before the network becomes a family"
        )


# Optimiser groups

PARAMETERS = ("params", "param_names")
_EXPECTED = "expected what a torch optimiser takes: dicts {'params': [...], 'lr': …}, or parameters alone"


def grouped(network: nn.Module, get_groups: GetGroups) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Return the groups that a function makes of a network, or refuse what a family could not be trained by.

    These are "group0", "group1", … by each name of each trainable parameter, and the options of each group.
    """
    names = {id(parameter): aliases for aliases, parameter in trainable(network)}
    frozen = {id(parameter) for parameter in network.parameters()} - names.keys()
    labels: dict[str, str] = {}
    options: list[dict[str, Any]] = []
    for index, group in enumerate(_dicts(get_groups(network))):
        options.append({key: _option(index, key, value) for key, value in group.items() if key not in PARAMETERS})
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
    return labels, options


def _dicts(found: Any) -> list[dict[str, Any]]:
    """Return groups as dicts, whatever form torch takes them in."""
    if isinstance(found, Optimizer):
        raise ArgumentError(f"groups= returned a {type(found).__name__}: return its groups, optimizer.param_groups")
    groups = _several("groups= returned", found)
    if groups and not isinstance(groups[0], dict):
        groups = [{"params": groups}]
    for index, group in enumerate(groups):
        if not isinstance(group, dict) or "params" not in group:
            raise ArgumentError(f"group {index} of groups= is {_shown(group)}: {_EXPECTED}")
    return groups


def _members(index: int, params: Any) -> list[Tensor]:
    """Return the parameters of a group: one, several, or several with their names."""
    found = [params] if isinstance(params, Tensor) else _several(f"'params' of group {index} of groups= is", params)
    members: list[Any] = [each[1] if isinstance(each, tuple) and len(each) == 2 else each for each in found]
    for each in members:
        if not isinstance(each, Tensor):
            raise ArgumentError(f"'params' of group {index} of groups= holds {_shown(each)}: {_EXPECTED}")
    return members


def _several(what: str, value: Any) -> list[Any]:
    if isinstance(value, (Tensor, Mapping, str)) or not isinstance(value, Iterable):
        raise ArgumentError(f"{what} {_shown(value)}: {_EXPECTED}")
    return list(value)


def _option(index: int, key: Any, value: Any) -> Any:
    """Return an option that a file of the family can hold too."""
    if isinstance(key, str):
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, Tensor) and value.numel() == 1:
            return value
        if isinstance(value, (tuple, list)):
            return type(value)([_option(index, key, each) for each in value])
    raise ArgumentError(
        f"option {key!r} of group {index} of groups= is {_shown(value)}: expected a number, text, True, False, None, "
        "or several of these; what else an optimiser takes can be set on family.parameter_groups()"
    )


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, (Tensor, nn.Module)) else checks.shown(value)
