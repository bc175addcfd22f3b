"""Sharpness-aware minimisation: the gradient of the worst neighbour (Foret et al., 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from subspaces.methods.fields import ABOVE_ZERO, setting
from subspaces.methods.method import METHODS, Backward, Hooks, Method


def sharp_gradient(parameters: Sequence[Tensor], rho: float, backward: Backward) -> None:
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


class Sharpness(Hooks["Sam"]):
    """Takes the gradient of the worst neighbour."""

    def gradient(self, backward: Backward) -> None:
        sharp_gradient(list(self.family.parameters()), self.method.sam_rho, backward)


@METHODS.add
@dataclass(frozen=True)
class Sam(Method):
    """Sharpness-aware minimisation."""

    name = "sam"
    meaning = "one network whose neighbours are good too"
    cost = 2.0
    hooks = Sharpness
    sam_rho: float = setting(
        0.05, "How far each step climbs before it takes its gradient.", ABOVE_ZERO, symbol="ρ", ordinary=(0, 10)
    )
