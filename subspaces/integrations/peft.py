"""Several LoRA adapters of one peft model as a family: their coefficients are chosen or learned, and kept in peft.

A point with coefficients c has the update sum_i c_i B_i A_i in each layer, exactly. Not A and B are averaged, which
would bring the products B_i A_j of different adapters, but the updates: the A of all adapters stand
below each other, frozen and shared, and vertex i has the columns of B_i beside zeros,

    [c_1 B_1 … c_m B_m] [A_1; …; A_m],

so that the adapter of a point has the sum of all ranks. Adapters may differ in rank, scaling and layers. Layers that
are trained as a whole (`modules_to_save`, such as the head of a classifier) are averaged with the same coefficients.
"""

import copy
import dataclasses
from collections.abc import Sequence
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
"""The name of the adapter in the family's networks."""


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
    shared = {id(value): value for value in model.parameters() if not value.requires_grad}
    twin: Any = functional.copied(model, shared)
    twin.add_adapter(COMBINED, _config([model.peft_config[name] for name in chosen]))
    twin.set_adapter(COMBINED)
    vertices = _vertices(twin, chosen, total)
    for name in [name for name in twin.peft_config if name != COMBINED]:
        twin.delete_adapter(name)
    for name, parameter in twin.named_parameters():
        parameter.requires_grad_(f".{COMBINED}" in name and "lora_A" not in name and "lora_embedding_A" not in name)
    family = Subspace(twin, Simplex(len(chosen)), init="point", offset=0.0, seed=0)
    for index, vertex in enumerate(vertices):
        for name, value in family.vertex(index).items():
            value.copy_(vertex[name])
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


@torch.no_grad()
def _vertices(model: nn.Module, names: Sequence[str], total: float) -> list[dict[str, Tensor]]:
    """Fill the combined A of each layer; return, for each adapter, its B beside zeros, and its own heads."""
    found: list[dict[str, Tensor]] = [{} for _ in names]
    for key, part in model.named_modules():
        if isinstance(part, LoraLayer) and (combined := _pair(part, COMBINED)):
            suffix = f"lora_B.{COMBINED}.weight" if COMBINED in part.lora_A else f"lora_embedding_B.{COMBINED}"
            combined[0].zero_()
            begin = 0
            for vertex, name in zip(found, names, strict=True):
                columns = vertex[f"{key}.{suffix}"] = torch.zeros_like(combined[1])
                if own := _pair(part, name):
                    end = begin + len(own[0])
                    combined[0][begin:end] = own[0]
                    columns[:, begin:end] = total * (own[1] * part.scaling[name])
                    begin = end
        elif isinstance(part, ModulesToSaveWrapper) and COMBINED in part.modules_to_save:
            saved: Any = part.modules_to_save  # a ModuleDict, which has no `get`
            for vertex, name in zip(found, names, strict=True):
                head: Any = saved[name] if name in saved else part.original_module  # noqa: SIM401
                for each, value in head.named_parameters():
                    vertex[f"{key}.modules_to_save.{COMBINED}.{each}"] = value.detach().clone()
    return found


def _pair(layer: Any, name: str) -> tuple[Tensor, Tensor] | None:
    """Return A [rank, …] and B [out, rank, …] of an adapter in a layer, if it has one there."""
    if name in layer.lora_A:
        return layer.lora_A[name].weight, layer.lora_B[name].weight
    return (layer.lora_embedding_A[name], layer.lora_embedding_B[name]) if name in layer.lora_embedding_A else None
