"""Sharpness-aware minimisation: the gradient of the worst neighbour (Foret et al., 2021)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def sharp_gradient(parameters: Sequence[Tensor], rho: float, backward: Callable[[bool], None]) -> None:
    """Leave in `.grad` the gradient at theta + rho g / ‖g‖, where g is the gradient at theta.

    The parameters come out exactly as they went in. Nothing waits for the device.

    Args:
        parameters: theta; those without a gradient stay where they are.
        rho: how far to climb.
        backward: renews the gradients; it is told whether it is called for the first time.
    """
    backward(True)
    with torch.no_grad():
        moved = [parameter for parameter in parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in moved if parameter.grad is not None]
        before = [parameter.clone() for parameter in moved]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]))
        scale = rho / (norm + 1e-12)
        for parameter, gradient in zip(moved, gradients, strict=True):
            parameter.add_(gradient * scale)
    backward(False)
    with torch.no_grad():
        for parameter, value in zip(moved, before, strict=True):
            parameter.copy_(value)
