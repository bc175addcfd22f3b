"""Small LightningModules as users write them: one that holds a family, and ordinary ones."""

from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

import subspaces as ss


def make_net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))


def data(n: int, seed: int = 0) -> TensorDataset:
    """Three classes that a line through the origin does not tell apart."""
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)) * 3 + 5
    return TensorDataset(x, (x[:, 0] > 4).long() + (x[:, 1] > 6).long())


def loader(n: int = 64, seed: int = 0, shuffle: bool = True, **options: Any) -> DataLoader[Any]:
    return DataLoader(data(n, seed), batch_size=16, shuffle=shuffle, **options)


def trainer(**options: Any) -> Trainer:
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "logger", "enable_checkpointing"), False)
    settings = {"accelerator": "cpu", "devices": 1, "max_epochs": 2, "log_every_n_steps": 1, **quiet, **options}
    return Trainer(**settings)


class Holding(LightningModule):
    """The simple way: a family instead of a network."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.net = ss.Subspace(make_net, ss.Line(), seed=1, **options)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self.net(x), y) + self.net.penalty(beta=1.0)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("accuracy", accuracy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class Plain(LightningModule):
    """An ordinary module of an ordinary network, with metrics, hyperparameters and a schedule."""

    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = make_net()
        self.accuracy = MulticlassAccuracy(num_classes=3)
        self.weights: list[Any] = []

    def forward(self, x: Tensor) -> Any:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("loss", loss)
        self.weights.append(self.net[0].weight.detach().clone())
        return {"loss": loss, "rows": len(batch[0])}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.accuracy(self(batch[0]), batch[1])
        self.log("accuracy", self.accuracy, on_epoch=True)

    def on_validation_epoch_end(self) -> None:
        self.log("at_zero", self(torch.zeros(1, 4)).sum())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams["lr"], momentum=0.9)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}


def accuracy(output: Tensor, y: Tensor) -> Tensor:
    return (output.argmax(1) == y).float().mean()


def total(net: nn.Module, held_out: DataLoader[Any]) -> float:
    """Return the accuracy of a network over a loader of equal batches."""
    net.eval()
    with torch.no_grad():
        return float(torch.stack(list(_each(net, held_out))).mean())


def _each(net: nn.Module, held_out: DataLoader[Any]) -> Iterator[Tensor]:
    for x, y in held_out:
        yield accuracy(net(x), y)
