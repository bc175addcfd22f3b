"""The private parts of torch that the core uses, all in one place; another version of torch may lack any of them."""

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch
import torch.nn.utils.parametrizations
import torch.nn.utils.stateless
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.utils import _pytree as pytree

__all__ = ["BatchNorm", "pytree"]


def private(name: str, default: Any = None) -> Any:
    """Return what torch keeps under a private name, such as "_C._functorch.is_batchedtensor", or a default."""
    found: Any = torch
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            return default
    return found


# Whether a tensor is seen through a transform of `torch.func`: code for these is right for any other tensor too
is_transformed: Callable[[Tensor], bool] = private("_C._functorch.is_functorch_wrapped_tensor", lambda tensor: True)
is_batched: Callable[[Tensor], bool] = private("_C._functorch.is_batchedtensor", is_transformed)
# A context in which a module has other tensors
reparametrized: Callable[..., AbstractContextManager[Any]] = private("nn.utils.stateless._reparametrize_module")
SpectralNorm: tuple[type[nn.Module], ...] = tuple(filter(None, [private("nn.utils.parametrizations._SpectralNorm")]))
is_tracing: Callable[[], bool] = private("_C._is_tracing", lambda: False)
_is_transforming: Callable[[], bool] = private("_C._are_functorch_transforms_active", lambda: True)
_dispatch_modes: Callable[[], int] = private("_C._len_torch_dispatch_stack", lambda: 1)
_task: Callable[[], int] = private("_C._current_graph_task_id", lambda: -1)


def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy tensors into others, in one kernel."""
    torch._foreach_copy_(targets, sources)


def is_observed() -> bool:
    """Return whether a transform, a trace or a dispatch mode observes each operation, and needs tensors."""
    return _is_transforming() or is_tracing() or _dispatch_modes() > 0


def in_backward() -> bool:
    """Return whether gradients are being computed, as when activation checkpointing runs something again."""
    return not torch.compiler.is_compiling() and _task() != -1


def forget_weights(part: nn.RNNBase) -> None:
    """Make a recurrent module drop its second list of weights and read the next ones when it runs."""
    count = len(part._flat_weights_names)
    part._flat_weights = [None] * count
    part._flat_weight_refs = [weakref.ref(nn.Parameter())] * count  # none of them is there any more


def run_last(context: Any) -> None:
    """Let the backward pass of an `autograd.Function` wait until nothing else is ready."""
    getattr(context, "_set_sequence_nr", int)(0)


@cache
def watch_checkpoints(again: Callable[[Callable[..., Any]], Callable[..., Any]], check: Callable[[], None]) -> None:
    """Pass what torch's checkpoints will run again through `again`, and call `check` before reentrant ones.

    The first call installs this, once for the process.
    """
    module: Any = torch.utils.checkpoint
    kept, reentrant = module._checkpoint_without_reentrant_generator, module.CheckpointFunction.apply

    def keep(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return kept(again(function), *args, **kwargs)

    def checked(*args: Any) -> Any:
        check()
        return reentrant(*args)

    module._checkpoint_without_reentrant_generator, module.CheckpointFunction.apply = keep, checked
