"""Sharpness-aware minimisation: the gradient of the worst neighbour (Foret et al., 2021)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from subspaces.core import distributed
from subspaces.experiments.methods.fields import ABOVE_ZERO, setting
from subspaces.experiments.methods.method import METHODS, Backward, Hooks, Method


def sharp_gradient(backward: Backward, rho: float) -> None:
    """Leave in `.grad` the gradient at theta + rho g / ‖g‖, where g is the gradient at theta.

    The parameters come out exactly as they went in; those without a gradient stay where they are. Nothing waits for
    the device. Runs side by side have a ‖g‖ each.
    """
    backward(True)
    with torch.no_grad():
        before = [(each, each.clone()) for group in backward.groups for each in group if each.grad is not None]
        for group in backward.groups:
            _climb([(each, each.grad) for each in group if each.grad is not None], rho, backward.runs)
    backward(False)
    with torch.no_grad():
        for parameter, value in before:
            parameter.copy_(value)


def _climb(moved: list[tuple[nn.Parameter, Tensor]], rho: float, runs: int) -> None:
    """Move parameters along their gradients, by rho in all, or in each of several runs."""
    norms = torch.stack([_norm(distributed.local(gradient), runs) for _, gradient in moved])
    length = torch.linalg.vector_norm(norms, dim=0)
    if distributed.mesh_of(moved[0][0]) is not None:  # each process has a part of the gradient
        length = distributed.total(length.square(), moved[0][0]).sqrt()
    scale = rho / (length + 1e-12)
    for parameter, gradient in moved:
        step = distributed.local(gradient) * scale.view(*scale.shape, *[1] * (gradient.ndim - runs))
        distributed.local(parameter).add_(step)


def _norm(gradient: Tensor, runs: int) -> Tensor:
    """Return the length of a gradient, or for each of several runs."""
    norm: Tensor = torch.linalg.vector_norm(gradient.flatten(runs), dim=-1)
    return norm


class Sharpness(Hooks["Sam"]):
    """Takes the gradient of the worst neighbour."""

    together = True

    def gradient(self, backward: Backward) -> None:
        sharp_gradient(backward, self.method.sam_rho)


@METHODS.add
@dataclass(frozen=True)
class Sam(Method):
    """Sharpness-aware minimisation."""

    name = "sam"
    meaning = "sharpness-aware minimisation (SAM)"
    cost = 2.0
    hooks = Sharpness
    sam_rho: float = setting(0.05, "How far each step climbs before it takes its gradient.", ABOVE_ZERO, symbol="ρ")
