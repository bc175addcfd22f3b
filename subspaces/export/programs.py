"""What is exported: modules from named tensors to named tensors, with the normalisation of images inside."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from subspaces.core import alpha as points
from subspaces.core import functional, geometry
from subspaces.core.batchnorm import tracked
from subspaces.core.family import Subspace
from subspaces.export import anchors
from subspaces.export.answers import Answer
from subspaces.export.inputs import Inputs, unique

Statistics = Mapping[str, Tensor]
"""Means and variances of batch norms at all anchors, by the names of their buffers: [k, channels] each."""


class WholeFamily(nn.Module):
    """The network at alpha: theta = c(alpha)^T Omega is computed inside."""

    def __init__(self, family: Subspace, statistics: Statistics) -> None:
        super().__init__()
        self.family = family
        self.names = list(statistics)
        for index, name in enumerate(self.names):
            self.register_buffer(f"statistics_{index}", statistics[name])

    def forward(self, alpha: Tensor, *args: Any, **kwargs: Any) -> Any:
        family = self.family
        alpha = anchors.inside(family.shape, alpha)
        c = points.coefficients(alpha, family.shape, family.layout)
        filled: dict[str, Tensor] = {}
        for group in family.layout.groups:
            filled |= group.unpack(geometry.mix(c[group.name], family.omega[group.name]))
        filled = {name: filled[name] for name in family.layout.places}
        if self.names:
            basis = anchors.basis(family.shape, alpha)
            for index, name in enumerate(self.names):
                mixed = basis @ getattr(self, f"statistics_{index}")
                filled[name] = mixed.clamp(min=0) if name.endswith("running_var") else mixed  # a parabola may dip
        return functional.call(family.template, filled, args, kwargs)


class Program(nn.Module):
    """From tensors, under the names of a network's inputs, to what its networks answer: one tensor or several.

    Args:
        networks: one, several that answer together, or a `WholeFamily`, which takes alpha after the inputs.
        inputs: the example, which says where in a network's arguments the tensors go.
        answer: what is returned of the networks' outputs.
        mean, std: what images are normalised with, for each channel.
    """

    mean: Tensor | None
    std: Tensor | None

    def __init__(
        self,
        networks: Sequence[nn.Module],
        inputs: Inputs,
        answer: Answer,
        mean: Sequence[float] = (),
        std: Sequence[float] = (),
    ) -> None:
        super().__init__()
        self.networks, self.inputs, self.answer = nn.ModuleList(networks), inputs, answer
        self.whole = isinstance(networks[0], WholeFamily)
        self.names = (*inputs.names, "alpha") if self.whole else inputs.names
        first = inputs.tensors[0]
        for name, numbers in (("mean", mean), ("std", std)):
            self.register_buffer(name, channels(numbers, first.ndim).to(first.dtype) if numbers else None)

        def forward(*tensors: Tensor, **named: Tensor) -> Any:
            found = tuple(self.answered(*tensors, *(named[name] for name in self.names[len(tensors) :])).values())
            return found if len(found) > 1 else found[0]

        names = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self.names]
        forward.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
        self.forward = forward

    def outputs(self, *tensors: Tensor) -> list[Any]:
        """Return what each network says."""
        given = list(tensors)
        alpha = [given.pop()] if self.whole else []
        if self.mean is not None and self.std is not None:
            given[0] = (given[0] - self.mean) / self.std
        holding = self.inputs.holding(given)
        return [network(*alpha, *holding.args, **holding.kwargs) for network in self.networks]

    def answered(self, *tensors: Tensor) -> dict[str, Tensor]:
        """Return the answer to some inputs by its names."""
        return self.named(self.outputs(*tensors))

    def named(self, outputs: Sequence[Any]) -> dict[str, Tensor]:
        """Return the answer of the networks' outputs by its names, none of which is that of an input."""
        found = self.answer(outputs)
        return dict(zip(unique(found, self.names), found.values(), strict=True))


def channels(numbers: Sequence[float], dimensions: int) -> Tensor:
    """Return a number for each channel of inputs of so many dimensions."""
    return torch.tensor(list(numbers)).view(-1, *[1] * (dimensions - 2))


def statistics_of(networks: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Return the statistics of networks at the anchors, stacked."""
    found: dict[str, list[Tensor]] = {}
    for network in networks:
        for name, norm in tracked(network).items():
            for kind, value in (("running_mean", norm.running_mean), ("running_var", norm.running_var)):
                if value is not None:
                    found.setdefault(f"{name}.{kind}", []).append(value.detach().clone())
    return {name: torch.stack(values) for name, values in found.items()}
