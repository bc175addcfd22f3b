"""The networks of runs, made without the code that exports them."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import subspaces as ss
from subspaces.experiments import data
from subspaces.experiments.training import Execution, Run
from subspaces.experiments.training.batches import statistics_batches
from subspaces.networks import MLP


class Truth:
    """The networks of a run, made without the code that exports them."""

    def __init__(self, folder: Path) -> None:
        self.recipe = Run.open(folder).recipe
        self.family = ss.load(folder / "family.safetensors", lambda: MLP(64, 10))
        self.dataset = data.load("digits")

    def network(self, alpha: Any) -> nn.Module:
        execution = Execution(device="cpu").resolved()
        return ss.recalibrate(self.family.at(alpha), statistics_batches(self.recipe, self.dataset, execution)).eval()

    @property
    def images(self) -> Tensor:
        return self.dataset.test.images[40:47].float() / 255  # type: ignore[union-attr]

    @torch.no_grad()
    def probabilities(self, alpha: Any) -> Tensor:
        x = (self.images - self.dataset.mean[0]) / self.dataset.std[0]
        return self.network(alpha)(x).softmax(-1)  # type: ignore[no-any-return]

    @torch.no_grad()
    def together(self, *alphas: Any) -> Any:
        x = (self.images - self.dataset.mean[0]) / self.dataset.std[0]
        return ss.Ensemble([self.network(alpha) for alpha in alphas]).predict(x)


def softmaxed(classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Return a network that ends in a softmax."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(image_shape), classes), nn.Softmax(1))
