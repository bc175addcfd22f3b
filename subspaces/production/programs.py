"""What is exported: modules from images in [0, 1] to probabilities, with the normalisation inside."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from subspaces import averages, geometry, points, template
from subspaces.ensembles import Ensemble
from subspaces.norms import tracked
from subspaces.production import anchors
from subspaces.production.errors import ExportError
from subspaces.subspace import Subspace

Statistics = Mapping[str, Tensor]
"""Means and variances of batch norms at all anchors, by the names of their buffers: [k, channels] each."""


class Program(nn.Module):
    """From images, float32 [n, C, H, W] in [0, 1], to probabilities [n, classes]."""

    inputs: tuple[str, ...] = ("images",)
    outputs: tuple[str, ...] = ("probabilities",)
    mean: Tensor | None
    std: Tensor | None

    def __init__(self, mean: Sequence[float], std: Sequence[float], dimensions: int = 4) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            shaped = torch.tensor(list(values)).view(-1, *[1] * (dimensions - 2)) if values else None
            self.register_buffer(name, shaped)

    def normalised(self, images: Tensor) -> Tensor:
        """Return images as the network gets them."""
        return images if self.mean is None or self.std is None else (images - self.mean) / self.std


class OneNetwork(Program):
    """The probabilities of one network."""

    def __init__(self, network: nn.Module, *normalisation: Any) -> None:
        super().__init__(*normalisation)
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return _softmax(_logits(self.network(self.normalised(images))))


class Several(Program):
    """The average of several networks, and by how much they disagree, as `Ensemble.predict` has them."""

    outputs = ("probabilities", "disagreement")

    def __init__(self, ensemble: Ensemble, *normalisation: Any) -> None:
        super().__init__(*normalisation)
        if ensemble.average not in ("probabilities", "logits"):
            raise ExportError(
                f"an ensemble with average={ensemble.average!r} has no probabilities of classes: expected one that "
                "averages 'probabilities' or 'logits'"
            )
        self.members, self.average = ensemble.members, ensemble.average
        self.select: Callable[[Any], Any] = ensemble.select or (lambda output: output)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = self.normalised(images)
        logits = torch.stack([_logits(self.select(member(x))) for member in self.members])  # [k, n, classes]
        each = averages.softmax(logits, -1)
        mean = averages.mean(each) if self.average == "probabilities" else _softmax(averages.mean(logits))
        disagreement = averages.doubt(each, -1).disagreement
        assert disagreement is not None
        return mean, disagreement


class WholeFamily(Program):
    """The network at alpha, which is a second input: theta = c(alpha)^T Omega is computed inside."""

    inputs = ("images", "alpha")

    def __init__(self, family: Subspace, statistics: Statistics, *normalisation: Any) -> None:
        super().__init__(*normalisation)
        self.family = family
        self.names = list(statistics)
        for index, name in enumerate(self.names):
            self.register_buffer(f"statistics_{index}", statistics[name])

    def forward(self, images: Tensor, alpha: Tensor) -> Tensor:
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
        return _softmax(_logits(template.call(family.template, filled, (self.normalised(images),), {})))


def statistics_of(networks: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Return the statistics of networks at the anchors, stacked."""
    found: dict[str, list[Tensor]] = {}
    for network in networks:
        for name, norm in tracked(network).items():
            for kind, value in (("running_mean", norm.running_mean), ("running_var", norm.running_var)):
                if value is not None:
                    found.setdefault(f"{name}.{kind}", []).append(value.detach().clone())
    return {name: torch.stack(values) for name, values in found.items()}


def _logits(output: Any) -> Tensor:
    found = averages.logits(output)
    if not isinstance(found, Tensor) or found.ndim != 2 or found.shape[1] < 2:
        what = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise ExportError(f"the network returns {what}: expected logits of shape [n, classes] of two classes or more")
    return found


def _softmax(logits: Tensor) -> Tensor:
    return averages.softmax(logits[None], -1)[0]
