"""Small families and batches that were drawn, which the tests of any family share."""

from typing import Any

import torch
from torch import Tensor, nn

import subspaces as ss

CLASSES, INPUTS = 10, 12
Batches = list[tuple[Tensor, Tensor]]


def drawn(count: int, seed: int, batch: int = 64) -> Batches:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, INPUTS, generator=generator)
    y = (x @ torch.randn(INPUTS, CLASSES, generator=torch.Generator().manual_seed(0))).argmax(1)
    return list(zip(x.split(batch), y.split(batch), strict=True))


TEST, VALIDATION, TRAINING = drawn(300, 1), drawn(200, 2), drawn(256, 3)
LOADERS: dict[str, Any] = {"test": TEST, "validation": VALIDATION, "statistics": TRAINING, "progress": False}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES))


def normless() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def family(shape: ss.Shape, make: Any = network) -> ss.Subspace:
    torch.manual_seed(7)
    return ss.Subspace(make, shape, seed=3)
