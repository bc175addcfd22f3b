"""Several LoRA adapters of one peft model as a family: their coefficients are chosen or learned, and kept in peft.

A point with coefficients c has the update sum_i c_i B_i A_i in each layer, exactly. Not A and B are averaged, which
would bring the products B_i A_j of adapters that never saw each other, but the updates: the A of all adapters stand
below each other, frozen and shared, and vertex i has the columns of B_i beside zeros,

    [c_1 B_1 … c_m B_m] [A_1; …; A_m],

so that the adapter of a point has the sum of all ranks. Adapters may differ in rank, scaling and layers. Layers that
are trained as a whole (`modules_to_save`, such as the head of a classifier) are averaged with the same coefficients.
"""

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from peft.utils import ModulesToSaveWrapper
from torch import Tensor, nn

from subspaces.core import checks, functional
from subspaces.core.alpha import Alpha
from subspaces.core.family import Subspace
from subspaces.core.shapes import Simplex
from subspaces.errors import ArgumentError
from subspaces.text import nearest

COMBINED = "combined"
"""What the adapter of the family's networks is called."""


def family_of_adapters(model: PeftModel, names: Sequence[str], *, total: float = 1.0) -> Subspace:
    """Return the family whose vertices are adapters of a model, which is copied; a point is their coefficients.

    Args:
        model: of peft, with two or more LoRA adapters.
        names: of the adapters, in the order of the coefficients.
        total: what the coefficients add up to: with 1 the midpoint is the mean of the updates, with len(names) their
            sum.

    Example:
        >>> family = family_of_adapters(model, ["french", "polite"])
        >>> selection = family.select(labelled, by=loss, per="layer")
        >>> add_combined(model, family, selection.alpha, "both")
        >>> model.save_pretrained("adapters", selected_adapters=["both"])
    """
    chosen = _check(model, names)
    total = checks.number("total", total)
    known = {id(value): value for value in model.parameters() if not value.requires_grad}
    twin: Any = functional.copied(model, known)
    twin.add_adapter(COMBINED, _config([model.peft_config[name] for name in chosen]))
    twin.set_adapter(COMBINED)
    columns = {name: _fill(layer, chosen) for name, layer in _layers(twin)}
    heads = [dict(_heads(twin, name)) for name in chosen]
    for name in [name for name in twin.peft_config if name != COMBINED]:
        twin.delete_adapter(name)
    for name, parameter in twin.named_parameters():
        parameter.requires_grad_(f".{COMBINED}" in name and "lora_A" not in name and "lora_embedding_A" not in name)
    family = Subspace(twin, Simplex(len(chosen)), init="point", offset=0.0, seed=0)
    for index, head in enumerate(heads):
        _write(family.vertex(index), index, columns, head, total)
    return family


def add_combined(model: PeftModel, family: Subspace, alpha: Alpha, name: str) -> None:
    """Add the point of a family of adapters to a model as an adapter of its own, which peft saves and loads."""
    if COMBINED not in getattr(family.template, "peft_config", {}):
        raise ArgumentError("add_combined got another family: expected one that family_of_adapters made")
    if name in model.peft_config:
        raise ArgumentError(f"name={name!r}: the model has an adapter of that name; expected another one")
    network: Any = family.at(alpha, share=True)
    model.add_adapter(name, copy.deepcopy(network.peft_config[COMBINED]))
    state = get_peft_model_state_dict(network, adapter_name=COMBINED)
    set_peft_model_state_dict(model, state, adapter_name=name)
    for key, part in model.named_modules():
        if name in key.split("."):
            part.train(model.training)  # else its dropout would be at work in a model that is evaluated


def _check(model: Any, names: Sequence[str]) -> list[str]:
    """Return the names of adapters, or say why they do not make a family."""
    if not isinstance(model, PeftModel):
        raise ArgumentError(f"family_of_adapters got a {type(model).__name__}: expected a model of peft")
    chosen = checks.several("names", names, "a list of adapters, such as ['first', 'second']")
    for name in chosen:
        if name not in model.peft_config:
            raise ArgumentError(f"names has {checks.shown(name)}: {nearest(str(name), list(model.peft_config))}")
        config: Any = model.peft_config[name]
        plain = isinstance(config, LoraConfig) and not config.use_dora and config.bias == "none"
        if not plain or config.target_parameters:
            raise ArgumentError(
                f"adapter {name!r} is of another kind: expected LoRA of layers, without DoRA and without trained biases"
            )
    if len(set(chosen)) < max(len(chosen), 2):
        raise ArgumentError(f"names={checks.shown(names)}: expected at least two different adapters")
    return chosen


def _config(configs: Sequence[Any]) -> Any:
    """Return the settings of an adapter that holds all of these, with a scaling of one."""
    rank = sum(max([config.r, *config.rank_pattern.values()]) for config in configs)
    targets = [config.target_modules for config in configs]
    if any(isinstance(each, str) for each in targets):
        together: Any = "|".join(f"({each})" for each in targets)
    else:
        together = set().union(*targets)
    plain = {"rank_pattern": {}, "alpha_pattern": {}, "use_rslora": False, "init_lora_weights": True}
    changes = {"r": rank, "lora_alpha": rank, "target_modules": together, "inference_mode": False, **plain}
    return dataclasses.replace(configs[0], **changes)


def _layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, part in model.named_modules():
        if isinstance(part, LoraLayer) and (COMBINED in part.lora_A or COMBINED in part.lora_embedding_A):
            yield name, part


def _pair(layer: Any, name: str) -> tuple[Tensor, Tensor] | None:
    """Return A [rank, …] and B [out, rank, …] of an adapter in a layer, if it has one there."""
    if name in layer.lora_A:
        return layer.lora_A[name].weight, layer.lora_B[name].weight
    return (layer.lora_embedding_A[name], layer.lora_embedding_B[name]) if name in layer.lora_embedding_A else None


@torch.no_grad()
def _fill(layer: Any, names: Sequence[str]) -> list[tuple[int, Tensor | None]]:
    """Put the A of all adapters below each other; return, for each, where its columns begin, and its scaled B."""
    whole = _pair(layer, COMBINED)
    assert whole is not None
    whole[0].zero_()
    found: list[tuple[int, Tensor | None]] = []
    begin = 0
    for name in names:
        pair = _pair(layer, name)
        found.append((begin, None if pair is None else pair[1].detach() * layer.scaling[name]))
        if pair is not None:
            whole[0][begin : begin + len(pair[0])] = pair[0]
            begin += len(pair[0])
    return found


def _heads(model: nn.Module, adapter: str) -> Iterator[tuple[str, Tensor]]:
    """Yield what an adapter has of layers that are trained as a whole, under the names of the combined one."""
    for name, part in model.named_modules():
        if isinstance(part, ModulesToSaveWrapper) and COMBINED in part.modules_to_save:
            saved: Any = part.modules_to_save  # a ModuleDict, which has no `get`
            own: Any = saved[adapter] if adapter in saved else part.original_module  # noqa: SIM401
            for key, value in own.named_parameters():
                yield f"{name}.modules_to_save.{COMBINED}.{key}", value.detach().clone()


def _write(
    vertex: dict[str, Tensor],
    index: int,
    columns: dict[str, list[tuple[int, Tensor | None]]],
    head: dict[str, Tensor],
    total: float,
) -> None:
    """Make a vertex its adapter: the columns of its B beside zeros, and its own heads."""
    for name, value in vertex.items():
        if name in head:
            value.copy_(head[name])
            continue
        begin, own = columns[name.partition(".lora_")[0]][index]
        value.zero_()
        if own is not None:
            value[:, begin : begin + own.shape[1]] = total * own
