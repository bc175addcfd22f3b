"""The networks that a new family starts from, and the optimiser groups of one of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import ParametrizationList
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm
from torch.optim import Optimizer

from subspaces.core import _compat, batchnorm, checks, functional
from subspaces.core.layout import Layout, trainable
from subspaces.core.shapes import Shape, check_shape
from subspaces.errors import ArgumentError
from subspaces.text import nearest

Factory = Callable[[], nn.Module]
Init = Literal["independent", "point"]
GetGroups = Callable[[Any], Iterable[Any]]
OFFSET = 0.1
"""How far vertices that start at one network are from it, relative to each weight."""


def initial_networks(
    network: Any, count: int, init: Init | None, offset: float | None
) -> tuple[list[nn.Module], bool, float]:
    """Return a network for each vertex, whether all are the same one, and the length of the steps to set them apart.

    What the user holds is never changed: the first network is a copy, and the others are new.
    """
    is_module = isinstance(network, nn.Module)
    if init not in (None, "independent", "point"):
        raise ArgumentError(f"init={checks.shown(init)}: expected 'independent' or 'point'")
    if is_module and init == "independent":
        raise ArgumentError(
            "init='independent' with a module, which is where all vertices start: pass a function that makes the "
            "network, Subspace(lambda: MyNet(…), shape), to draw every vertex anew, or leave init out"
        )
    point = is_module or init == "point"
    if offset is not None and (checks.number("offset", offset) < 0 or (offset and not point)):
        raise ArgumentError(
            f"offset={checks.shown(offset)}: expected a number of at least 0, and a module or init='point' with it"
        )
    if not (is_module or callable(network)):
        raise ArgumentError(
            f"Subspace got {checks.shown(network)}: expected an nn.Module, or a function that makes one"
        )
    made = [network if is_module else network() for _ in range(1 if point else count)]
    if len({id(each) for each in made}) < len(made):
        raise ArgumentError("the factory returned the same module twice: it must make a new one at each call")
    for each in made:
        if not isinstance(each, nn.Module):
            raise ArgumentError(f"the factory returned {checks.shown(each)}: expected an nn.Module")
        _check_supported(each)
    _check_same(made)
    made[0] = functional.copied(made[0])
    return made * count if point else made, point, OFFSET * point if offset is None else float(offset)


def given_networks(modules: Iterable[nn.Module], shape: Shape) -> list[nn.Module]:
    """Return existing networks as a list, one for each vertex."""
    check_shape(shape)
    networks = checks.several("modules", modules, "a list of modules, one per vertex")
    if len(networks) != shape.vertices or not all(isinstance(each, nn.Module) for each in networks):
        kinds = ", ".join(type(each).__name__ for each in networks[:4])
        raise ArgumentError(
            f"from_modules got {len(networks)} networks ({kinds}): {shape} has {shape.vertices} vertices, expected an "
            "nn.Module for each"
        )
    for each in networks:
        _check_supported(each)
    return networks


def _check_supported(module: nn.Module) -> None:
    """Refuse what cannot be in a subspace."""
    batchnorm.check_norms(module)
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise ArgumentError("the network has lazy parameters without a shape: run it once on a batch first")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ArgumentError("the network has no trainable parameters, so there is nothing to make a subspace of")
    for name, parameter in module.named_parameters():
        hooked = parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
        if parameter.requires_grad and hooked:
            raise ArgumentError(
                f"parameter {name!r} has a gradient hook, which a family cannot keep: register it on the tensors of "
                "family.omega (the gradients of all vertices), or on the network inside `with family.point() as net:`"
            )
    for name, part in module.named_modules():
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and (part.sparse or part.max_norm is not None):
            raise ArgumentError(
                f"embedding {name!r} has sparse gradients, which a subspace cannot mix, or max_norm, which changes "
                "weights in place: pass sparse=False and max_norm=None"
            )
        if any(parameter.requires_grad for parameter in part.parameters()):
            _check_part(name, part)


def _check_part(name: str, part: nn.Module) -> None:
    """Refuse a part whose weights are computed by a hook before each call, or from singular vectors in buffers."""
    for hook in part._forward_pre_hooks.values():
        if isinstance(hook, (WeightNorm, SpectralNorm, BasePruningMethod)):
            raise ArgumentError(
                f"a hook ({type(hook).__name__}) computes weights of part {name!r} before each call: use "
                "torch.nn.utils.parametrizations.weight_norm, or make pruning permanent with prune.remove first"
            )
    if isinstance(part, ParametrizationList) and any(isinstance(each, _compat.SpectralNorm) for each in part):
        raise ArgumentError(
            f"part {name!r} has spectral_norm, whose buffers are the singular vectors of one set of weights and "
            "belong to no point of a family: remove it, freeze its weight, or use weight_norm"
        )


def _check_same(networks: Sequence[nn.Module]) -> None:
    """Refuse networks of other architectures, or with other values of frozen parameters, which a family shares."""
    first, frozen = _described(networks[0]), dict(networks[0].named_parameters())
    for index, network in enumerate(networks[1:], 1):
        other = _described(network)
        for name in (name for name in {**first, **other} if first.get(name) != other.get(name)):
            raise ArgumentError(
                f"network {index} does not match network 0: {name} is {other.get(name, 'missing')}, expected "
                f"{first.get(name, 'none of that name')}; all must have the same architecture"
            )
        for name, value in network.named_parameters():
            if not value.requires_grad and not torch.equal(value, frozen[name]):
                raise ArgumentError(
                    f"frozen parameter {name} of network {index} differs from network 0, and frozen parameters are "
                    "shared by the whole family: make it trainable, or give all networks the same values"
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


def set_apart(
    vertices: Sequence[Mapping[str, Tensor]], layout: Layout, shape: Shape, size: float, generator: torch.Generator
) -> None:
    """Set vertices apart that start at one network, so that their midpoint stays there."""
    middle = shape.coefficients(shape.midpoint().double())
    for name in (entry.names[0] for group in layout.groups if group.penalised for entry in group.entries):
        steps = _offsets(vertices[0][name], middle, size, generator)
        for vertex, step in zip(vertices, steps, strict=True):
            vertex[name].add_(step)


def _offsets(weight: Tensor, middle: Tensor, size: float, generator: torch.Generator) -> Tensor:
    """Return the steps of m vertices from a weight, [m, *shape]: d_i = s_i - sum_j c_j s_j.

    The random s_i are orthogonal to the weight and to each other and `size` times as long as it, c [m] are the
    coefficients of the midpoint. Where there is no room for that the steps are zero.
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


def grouped(
    network: nn.Module, get_groups: GetGroups | None
) -> tuple[dict[str, str] | None, list[dict[str, Any]] | None]:
    """Return "group0", "group1", … by each name of each trainable parameter, and the options of each group."""
    if get_groups is None:
        return None, None
    found: Any = get_groups(network)
    try:  # what an optimiser takes is a list of dicts, with lists of parameters, in an optimiser
        groups = Optimizer(found.param_groups if isinstance(found, Optimizer) else found, {}).param_groups
    except (TypeError, ValueError, KeyError) as error:
        raise ArgumentError(
            f"groups= returned a {type(found).__name__} ({error}): expected what a torch optimiser takes, dicts "
            "{'params': [...], 'lr': …} or parameters alone"
        ) from None
    names = {id(parameter): aliases for aliases, parameter in trainable(network)}
    known = {id(parameter) for parameter in network.parameters()}
    labels: dict[str, str] = {}
    for index, parameter in ((index, each) for index, group in enumerate(groups) for each in group["params"]):
        if id(parameter) not in known:
            raise ArgumentError(
                f"group {index} of groups= holds a tensor of shape {tuple(parameter.shape)}, which is no parameter "
                "of the network that the function was given: give it to the optimiser, add_param_group(…)"
            )
        labels |= dict.fromkeys(names.get(id(parameter), ()), f"group{index}")
    for name in (aliases[0] for aliases in names.values() if aliases[0] not in labels):
        raise ArgumentError(
            f"the trainable parameter {name!r} is in no group of groups=: put it in one, or freeze it with "
            "requires_grad_(False) if it shall not be trained"
        )
    return labels, [{key: group[key] for key in group if key not in ("params", "param_names")} for group in groups]


def parameter_groups(family: Any, **options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return groups for a torch optimiser, with options by group name.

    Example:
        >>> torch.optim.SGD(family.parameter_groups(others={"weight_decay": 0}), lr=0.1, weight_decay=1e-4)
    """
    known, made = ["weights", "others"], family.options
    labels = list(dict.fromkeys(group.label for group in family.layout.groups))
    if made is not None:
        labels = known = [f"group{index}" for index in range(len(made))]
    for name, given in options.items():
        if name not in known or not isinstance(given, Mapping):
            raise ArgumentError(
                f"parameter_groups({name}={checks.shown(given)}): expected dicts of options by group; "
                f"{nearest(name, known)}"
            )
    found = []
    for index, label in enumerate(labels):
        rows = [family.omega[group.name] for group in family.layout.groups if group.label == label]
        found.append({**(made[index] if made else {}), **options.get(label, {}), "params": rows})
    return found
