"""`Model`: something that predicts, wherever it came from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from subspaces.export.errors import ModelError
from subspaces.export.metadata import Metadata

Call = Callable[..., Sequence[Tensor]]
"""From images, and of a family alpha, to probabilities, and of an ensemble disagreement."""


@dataclass(frozen=True)
class Model:
    """Something that predicts."""

    where: Path
    about: Metadata
    call: Call
    alpha: Tensor | None = None

    @torch.no_grad()
    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return probabilities [n, classes] and, of an ensemble, disagreement [n]."""
        said = self.call(images) if self.alpha is None else self.call(images, self.alpha)
        classes, n = len(self.about.classes), len(images)
        shapes = [(n, classes), (n,)][: len(self.about.outputs)]
        if [tuple(each.shape) for each in said] != shapes:
            found = ", ".join(str(tuple(each.shape)) for each in said)
            raise ModelError(f"{self.where} answers {n} images with {found}: expected {shapes}; use another copy")
        return said[0], said[1] if len(said) > 1 else None


def called(program: nn.Module) -> Call:
    """Return a module as what a model calls: its outputs are always several."""

    def call(*inputs: Tensor) -> Sequence[Tensor]:
        said = program(*inputs)
        return said if isinstance(said, (tuple, list)) else (said,)

    return call
