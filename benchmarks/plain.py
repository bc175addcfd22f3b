"""The steps of the engine as plain PyTorch: an ordinary loop, whose line is mixed layer by layer."""

import os
from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader, Dataset

from subspaces.experiments import data
from subspaces.experiments.training.batches import training_batches
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import Recipe
from subspaces.networks import registry
from subspaces.networks.models import Conv2d

Batch = tuple[Tensor, Tensor]


class Images(Dataset[tuple[Tensor, int]]):
    """Images one at a time, cropped, flipped and normalised on the host, as most training scripts do it."""

    def __init__(self, dataset: data.Dataset, pad: int, flip: bool) -> None:
        split = dataset.train
        if not isinstance(split, data.Split):
            raise TypeError(f"{dataset.name}: its images are files, expected a data set that fits into memory")
        self.images, self.labels = split.images.numpy(), split.labels.tolist()
        self.pad, self.flip = pad, flip
        self.mean, self.std = (np.array(each, np.float32)[:, None, None] for each in (dataset.mean, dataset.std))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, pad = self.images[index], self.pad
        if pad:
            (top, left), (height, width) = np.random.randint(0, 2 * pad + 1, 2), image.shape[1:]
            image = np.pad(image, ((0, 0), (pad, pad), (pad, pad)))[:, top : top + height, left : left + width]
        if self.flip and np.random.rand() < 0.5:
            image = image[:, :, ::-1]
        return torch.from_numpy((image.astype(np.float32) / 255 - self.mean) / self.std), self.labels[index]


class Mix(nn.Module):
    """One layer's weight as a point of a line, whose second end it owns."""

    def __init__(self, other: Tensor, alpha: Tensor) -> None:
        super().__init__()
        self.other = nn.Parameter(other)
        self.alpha = alpha

    def forward(self, weight: Tensor) -> Tensor:
        return (1 - self.alpha) * weight + self.alpha * self.other


def network(recipe: Recipe, dataset: data.Dataset) -> nn.Module:
    """Return a new network with torch's own convolutions, also where ours would be faster."""
    built = registry.build(recipe.network, classes=len(dataset.classes), image_shape=dataset.image_shape)
    for part in built.modules():
        if type(part) is Conv2d:
            part.__class__ = nn.Conv2d  # type: ignore[assignment]
    return built


class Loop:
    """An ordinary training loop: eager, or with forward, loss and penalty compiled.

    With `workers` a DataLoader makes its batches on the host, otherwise they are the engine's, made on the device.
    """

    def __init__(
        self, recipe: Recipe, dataset: data.Dataset, execution: Execution, *, compiled: bool, workers: bool
    ) -> None:
        self.device, self.low = execution.device, execution.precision == "bfloat16"
        self.batch = recipe.batch
        self.beta = recipe.beta if recipe.method == "line" else 0.0
        self.alpha = torch.zeros((), device=self.device)
        self.totals = torch.zeros(2, device=self.device)  # sum of the loss, correct predictions
        torch.manual_seed(recipe.seed)
        self.model, other = (network(recipe, dataset).to(self.device) for _ in range(2))
        if recipe.method == "line":
            self._span(other)
        if not workers:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.ends = [  # of the weights that the penalty looks at
            (weights.original, weights[0].other)
            for weights in self.model.modules()
            if isinstance(weights, parametrize.ParametrizationList) and weights.original.ndim > 1
        ]
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay
        )
        make = _on_host if workers else _on_device
        self.stream = make(recipe, dataset, execution)
        self.objective = torch.compile(self._objective, dynamic=False) if compiled else self._objective

    def _span(self, other: nn.Module) -> None:
        """Make every weight of the network the end of a line to that of another."""
        for module, twin in list(zip(self.model.modules(), other.modules(), strict=True)):
            for name, parameter in list(twin.named_parameters(recurse=False)):
                mix = Mix(parameter.detach().clone(), self.alpha)
                parametrize.register_parametrization(module, name, mix)

    def _objective(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is made smaller, and [2]: the sum of the loss, and how many predictions are correct."""
        with torch.autocast(self.device, torch.bfloat16, enabled=self.low):
            logits = self.model(x)
            loss = F.cross_entropy(logits, y)
        found = torch.stack([loss.detach() * len(y), (logits.detach().argmax(1) == y).sum()])
        if not self.beta:
            return loss, found
        first, second = (torch.cat([end.flatten() for end in side]) for side in zip(*self.ends, strict=True))
        return loss + self.beta * F.cosine_similarity(first, second, dim=0).square(), found

    def run(self, steps: int) -> int:
        """Make so many steps."""
        for _ in range(steps):
            x, y = (part.to(self.device, non_blocking=True) for part in next(self.stream))
            self.alpha.uniform_()
            self.optimizer.zero_grad()
            whole = len(y) == self.batch  # the last batch of an epoch may be smaller, and is not compiled by the engine
            loss, found = (self.objective if whole else self._objective)(x, y)
            self.totals.add_(found)
            loss.backward()
            self.optimizer.step()
        return steps


def _on_host(recipe: Recipe, dataset: data.Dataset, execution: Execution) -> Iterator[Batch]:
    """Yield batches that worker processes make."""
    loader = DataLoader(
        Images(dataset, recipe.pad, recipe.flip),
        recipe.batch,
        shuffle=True,
        num_workers=max(1, min(8, (os.cpu_count() or 2) - 1)),
        persistent_workers=True,
        pin_memory=execution.device == "cuda",
    )
    while True:
        yield from loader


def _on_device(recipe: Recipe, dataset: data.Dataset, execution: Execution) -> Iterator[Batch]:
    """Yield the engine's own batches."""
    loader = training_batches(recipe, dataset, execution)
    while True:
        yield from loader
