"""A data set whose images say which they are, a network that notes what it is asked, and a value of every field."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from subspaces.experiments import data
from subspaces.experiments.data import loading
from subspaces.experiments.training import Recipe

SIDE, CLASSES = 5, 5
SEEDS = ("seed", "data_seed")
BASE = Recipe(
    name="seeds",
    dataset="digits",
    network="seed_cases:probe",
    method="simplex",
    label_noise=0.5,
    validation=14,
    data_seed=1,
    pad=1,
    flip=True,
    dropout=0.5,
    epochs=2,
    batch=20,
    learning_rate=0.01,
    seed=1,
)
CHANGED = {field: getattr(BASE, field) + 1 for field in SEEDS}

LINE, SIMPLEX = {"method": "line"}, {"method": "simplex", "vertices": 3}
FIELDS: dict[str, tuple[dict[str, Any], Any]] = {  # the recipe that uses it, and another value
    "dataset": ({}, "mnist"),
    "label_noise": ({}, 0.6),
    "validation": ({}, 20),
    "data_seed": ({}, 1),
    "pad": ({}, 1),
    "flip": ({}, True),
    "network": ({}, "lenet"),
    "dropout": ({"network": "seed_cases:probe"}, 0.5),
    "method": ({}, "line"),
    "vertices": (SIMPLEX, 4),
    "layerwise": (LINE, True),
    "init": (LINE, "point"),
    "beta": (LINE, 3.0),
    "samples": (LINE, 2),
    "feature_similarity": ({**LINE, "samples": 2, "feature_similarity": 0.5}, 3.0),
    "label_smoothing": ({}, 0.2),
    "epochs": ({}, 3),
    "batch": ({}, 16),
    "optimizer": ({}, "Adam"),
    "learning_rate": ({}, 0.03),
    "momentum": ({}, 0.5),
    "weight_decay": ({}, 0.1),
    "schedule": ({}, "constant"),
    "seed": ({}, 1),
    "ema_decay": ({"method": "ema"}, 0.5),
    "sam_rho": ({"method": "sam"}, 0.5),
    "epsilon": ({"method": "integral"}, 0.5),
    "augment": ({}, "resized-crop"),
}


def numbered(train: int = 64, test: int = 16) -> data.Dataset:
    """Images of two channels: their own number everywhere, and a number for each place; every label is 0."""
    places = torch.arange(SIDE * SIDE).view(1, SIDE, SIDE) + 1

    def split(count: int) -> data.Split:
        own = torch.arange(count).view(-1, 1, 1, 1).expand(-1, 1, SIDE, SIDE) + 1
        images = torch.cat([own, places.expand(count, 1, SIDE, SIDE)], 1).to(torch.uint8)
        return data.Split(images, torch.zeros(count, dtype=torch.int64))

    unit = (1 / 255, 1 / 255)  # so that a batch has the numbers themselves
    return data.Dataset("numbered", split(train), None, split(test), tuple(map(str, range(CLASSES))), (0.0, 0.0), unit)


def use_numbered(monkeypatch: Any) -> None:
    """Make the numbered images the data set that is called digits."""
    monkeypatch.setitem(loading.SOURCES, "digits", loading.SOURCES["digits"]._replace(load=lambda *_: numbered()))


@dataclass(frozen=True)
class Call:
    """What a network was asked, and which of its units it dropped."""

    training: bool
    learning: bool  # with gradients
    dropping: bool
    x: Tensor
    mask: Tensor
    body: Tensor

    @property
    def numbers(self) -> list[int]:
        """Which images these are."""
        return [int(number) - 1 for number in self.x[:, 0].amax((1, 2)).tolist()]

    @property
    def views(self) -> dict[int, bytes]:
        """How each image was cropped and flipped."""
        seen = zip(self.numbers, self.x[:, 1], strict=True)
        return {number: view.contiguous().numpy().tobytes() for number, view in seen}


class Probe(nn.Module):
    """A layer with batch norm and dropout."""

    calls: ClassVar[list[Call]] = []

    def __init__(self, inputs: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.body = nn.Linear(inputs, 8)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        body = self.body(x.flatten(1))
        hidden = self.norm(body).relu()
        mask = self.dropout(torch.ones_like(hidden))
        if x.amax() > 0:  # not when it is tried out on nothing
            seen = (x.detach().clone(), mask.detach().clone(), body.detach())
            Probe.calls.append(Call(self.training, torch.is_grad_enabled(), self.dropout.training, *seen))
        return self.head(hidden * mask)


def probe(classes: int, image_shape: tuple[int, int, int], dropout: float) -> nn.Module:
    channels, height, width = image_shape
    return Probe(channels * height * width, classes, dropout)


def taken() -> list[Call]:
    """Return the calls since this was last asked."""
    found = list(Probe.calls)
    Probe.calls.clear()
    return found
