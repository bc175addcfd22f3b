"""Batch norm over the batch of all processes, not over the share of each."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

ORDINARY = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class _Total(torch.autograd.Function):
    """The sum over all processes; so is its gradient, as what each made of the sum depends on every part."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        found = value.clone()
        dist.all_reduce(found)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        found = gradients[0].contiguous().clone()
        dist.all_reduce(found)
        return found


def _total(value: Tensor) -> Tensor:
    found: Tensor = _Total.apply(value)  # type: ignore[no-untyped-call]
    return found


class Synchronised(_BatchNorm):
    """A batch norm that, while it keeps no statistics, normalises with those of all processes.

    With the sums over all examples and places of all processes, n of them, for each channel

        mean = sum x / n        variance = sum (x - mean)² / n

    While it keeps statistics, as networks that are taken out of a family do, it is an ordinary one: processes may
    then run different numbers of batches.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        """The network was made with a norm that checked it."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.track_running_stats:
            return super().forward(input)
        return synchronised(input, self.weight, self.bias, self.eps)


def synchronised(x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float) -> Tensor:
    """Return (x - mean) / √(variance + epsilon) · weight + bias, of the batches of all processes."""
    others = [dimension for dimension in range(x.ndim) if dimension != 1]
    shape = [1, -1] + [1] * (x.ndim - 2)
    with torch.autocast(x.device.type, enabled=False):
        values = x.to(torch.promote_types(x.dtype, torch.float32))
        count = values.new_tensor([x.numel() / x.shape[1]])
        sums = _total(torch.cat([values.sum(others), count]))
        mean, n = sums[:-1] / sums[-1], sums[-1]
        centred = values - mean.view(shape)
        variance = _total(centred.square().sum(others)) / n
        scale = torch.rsqrt(variance + epsilon)
        result = centred * (scale if weight is None else scale * weight).view(shape)
        return (result if bias is None else result + bias.view(shape)).to(x.dtype)


def synchronise(network: nn.Module) -> nn.Module:
    """Return the network with torch's batch norms replaced by synchronised ones, which share their parameters."""
    made: dict[nn.Module, Synchronised] = {}
    for name, part in list(network.named_modules(remove_duplicate=False)):
        if type(part) in ORDINARY:
            norm = made.setdefault(part, _like(part))
            parent, _, own = name.rpartition(".")
            if not own:
                return norm
            setattr(network.get_submodule(parent), own, norm)
    return network


def _like(norm: Any) -> Synchronised:
    """Return a synchronised norm with the settings, parameters, statistics and mode of another."""
    made = Synchronised(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    made.weight, made.bias = norm.weight, norm.bias
    for name, value in norm.named_buffers():
        made.register_buffer(name, value)
    return made.train(norm.training)
