"""The networks that a new family starts from."""

import copy
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from subspaces import memory, values
from subspaces.errors import ArgumentError
from subspaces.shapes import Shape

Factory = Callable[[], nn.Module]
Init = Literal["independent", "point"]


def initial_networks(network: nn.Module | Factory, count: int, init: Init) -> list[nn.Module]:
    """Return `count` networks of one architecture: independent ones, or the same one for "point".

    What the user holds is never changed: the first network is a copy, and the others are new.
    """
    if init not in ("independent", "point"):
        raise ArgumentError(f"init={values.shown(init)}: expected 'independent' or 'point'")
    if isinstance(network, nn.Module):
        first = network
        make: Factory = lambda: redrawn(network)  # noqa: E731
    elif callable(network):
        make = network
        first = _made(make)
    else:
        raise ArgumentError(
            f"Subspace got a {type(network).__name__}: expected an nn.Module or a function that makes one"
        )
    _check_supported(first)
    _check_memory(first, count if init == "point" else 2 * count)
    others = [first if init == "point" else _made(make) for _ in range(count - 1)]
    if init != "point" and len({id(other) for other in [first, *others]}) < count:
        raise ArgumentError("the factory returned the same module twice: it must make a new one at each call")
    check_same_architecture([first, *others])
    if not isinstance(network, nn.Module):
        _check_same_frozen([first, *others])
    return [copy.deepcopy(first), *others]


def _made(factory: Factory) -> nn.Module:
    module = factory()
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"the factory returned a {type(module).__name__}: expected an nn.Module")
    return module


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


def redrawn(network: nn.Module) -> nn.Module:
    """Return a copy of a network with new weights, or refuse where the old ones were loaded, or of another size."""
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and getattr(parameter, LOADED, False):
            raise ArgumentError(
                f"parameter {name!r} was loaded by from_pretrained, and the other vertices would be new draws, far "
                f"from it: {INSTEAD}, {APART}"
            )
    other = copy.deepcopy(network)
    with torch.no_grad():
        reinitialise(other, "")
        for (name, old), new in zip(network.named_parameters(), other.parameters(), strict=True):
            if old.requires_grad:
                _check_size(name, old, new)
                _check_drawn(name, network.get_submodule(name.rpartition(".")[0]), old, new)
    return other


def reinitialise(module: nn.Module, name: str, drawn: bool = False) -> None:
    """Draw new weights in place: by each part's `reset_parameters()`, and a network's own `_init_weights(part)`.

    `drawn`: a module that this one is a part of draws the weights of its parts.
    """
    whole = getattr(module, "_init_weights", None)
    needed = 0
    if callable(whole):
        taken = inspect.signature(whole)
        needed = sum(each.default is each.empty and each.kind in _ALONE for each in taken.parameters.values())
        if needed > 1:
            if any(p.requires_grad for p in module.parameters()):
                raise _undrawn(name, module, f"has an _init_weights{taken} that takes more than a part")
            return  # all of it is shared
    # Parts first, so that a module that initialises its parts in its own way has the last word.
    for key, child in module.named_children():
        reinitialise(child, f"{name}.{key}" if name else key, drawn or needed > 0)
    reset = _reset(module)
    if callable(reset):
        reset()
    elif not drawn and not callable(whole) and any(p.requires_grad for p in module.parameters(recurse=False)):
        raise _undrawn(name, module, "has no reset_parameters()")
    if callable(whole):
        if needed:
            module.apply(whole)  # parts first here too: a module may scale what its parts have drawn
        else:
            whole()


_ALONE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _reset(module: nn.Module) -> Any:
    return getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)


def _undrawn(name: str, module: nn.Module, why: str) -> ArgumentError:
    where = f"part {name!r} of the network" if name else "the network"
    return ArgumentError(
        f"{where}, a {type(module).__name__}, owns trainable parameters and {why}, so its "
        f"other vertices cannot be initialised: {INSTEAD}"
    )


def _check_drawn(name: str, owner: nn.Module, old: Tensor, new: Tensor) -> None:
    """Refuse a matrix that the network's own `_init_weights` has left as it was, of a part that cannot draw itself."""
    left = old.ndim > 1 and bool((old != old.flatten()[:1]).any()) and torch.equal(old, new)
    if left and not callable(_reset(owner)) and not callable(getattr(owner, "_init_weights", None)):
        part, _, key = name.rpartition(".")
        why = f"has no reset_parameters(), and the network's _init_weights leaves its {key} alone"
        raise _undrawn(part, owner, why)


INSTEAD = "pass a factory, Subspace(lambda: MyNet(…), shape), or init='point' to start all vertices at its weights"
APART = "with offset=0.1, say, to set them apart"
LOADED = "_is_hf_initialized"
"""What transformers writes on parameters that it has read from a file, and not on those that it has drawn."""
SIZES = 3.0, 32
"""How many times larger or smaller new weights may be than the old ones, and of how many such a size can be told."""


def _check_size(name: str, old: Tensor, new: Tensor) -> None:
    """Refuse a matrix that is drawn much larger or smaller than it was: it is trained, or initialised elsewhere."""
    most, least = SIZES
    before, after = (float(value.abs().square().mean().sqrt()) for value in (old, new))
    constant = min(before, after) == 0 < max(before, after)  # such as an adapter that begins as nothing
    if old.ndim > 1 and (constant or (old.numel() >= least and not 1 / most <= before / max(after, 1e-30) <= most)):
        raise ArgumentError(
            f"parameter {name!r} is of size {before:.3g} (root mean square) and, drawn anew by reset_parameters(), "
            f"of size {after:.3g}: the network is trained, an adapter, or initialised in another way; {INSTEAD}, "
            f"{APART}"
        )


def offsets(weight: Tensor, count: int, size: float, generator: torch.Generator) -> Tensor:
    """Return steps away from a weight, [count, *shape]: each `size` times as long as it.

    They are orthogonal to it and to each other; where there is no room for that they are zero.
    """
    row = weight.detach().flatten()
    if not row.is_floating_point() or row.numel() <= count or not bool(row.any()):
        return weight.detach().new_zeros(count, *weight.shape)
    draws = torch.randn(row.numel(), count, generator=generator).to(row.device)
    exact = torch.promote_types(row.dtype, torch.float32)
    directions: Tensor = torch.linalg.qr(torch.cat([row[:, None], draws.to(exact)], 1).to(exact))[0][:, 1:]
    steps: Tensor = size * row.to(exact).norm() * directions.T
    return steps.to(row.dtype).view(count, *weight.shape)


def given_networks(modules: Iterable[nn.Module], shape: Shape) -> list[nn.Module]:
    """Return existing networks as a list, or say why they cannot span one family of that shape."""
    if not isinstance(modules, Iterable):
        raise ArgumentError(f"from_modules got a {type(modules).__name__}: expected a list of modules, one per vertex")
    networks = list(modules)
    if len(networks) != shape.vertices:
        raise ArgumentError(f"from_modules got {len(networks)} networks: {shape} has {shape.vertices} vertices")
    for index, network in enumerate(networks):
        if not isinstance(network, nn.Module):
            raise ArgumentError(f"network {index} is a {type(network).__name__}: expected an nn.Module")
        _check_supported(network)
    check_same_architecture(networks)
    _check_same_frozen(networks)
    return networks


def check_same_architecture(networks: Sequence[nn.Module]) -> None:
    """Refuse networks whose parameters or buffers differ in name, shape, dtype, device, ties or being trainable."""

    def signature(module: nn.Module) -> dict[str, str]:
        described: dict[str, str] = {}
        names: dict[nn.Parameter, str] = {}
        for name, p in module.named_parameters(remove_duplicate=False):
            tie = "" if names.setdefault(p, name) == name else f", tied to {names[p]}"
            trainable = "trainable" if p.requires_grad else "frozen"
            described[f"parameter {name}"] = f"{tuple(p.shape)} {p.dtype} on {p.device}, {trainable}{tie}"
        buffers = module.named_buffers(remove_duplicate=False)
        return described | {f"buffer {name}": f"{tuple(b.shape)} {b.dtype}" for name, b in buffers}

    first = signature(networks[0])
    for index, network in enumerate(networks[1:], 1):
        other = signature(network)
        for name in [*first, *other]:
            if first.get(name) != other.get(name):
                raise ArgumentError(
                    f"network {index} does not match network 0: {name} is {other.get(name, 'missing')}, "
                    f"expected {first.get(name, 'none of that name')}; all must have the same architecture"
                )


def _check_same_frozen(networks: Sequence[nn.Module]) -> None:
    """Refuse networks that differ in a frozen parameter, which a family shares."""
    shared = {name: p for name, p in networks[0].named_parameters() if not p.requires_grad}
    for index, network in enumerate(networks[1:], 1):
        for name, value in network.named_parameters():
            if name in shared and not torch.equal(value, shared[name]):
                raise ArgumentError(
                    f"frozen parameter {name} of network {index} differs from network 0: frozen parameters are "
                    "shared by the whole family; make it trainable, or give all networks the same values"
                )
