"""A line of networks in Lightning: a module holds a family instead of a network, or is made into a family itself."""

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import subspaces as ss
from subspaces.integrations.lightning import LightningSubspace, SubspaceCallback


class Digits(pl.LightningModule):  # noqa: D101
    def __init__(self, shape: ss.Shape | None = None) -> None:
        super().__init__()
        make = lambda: nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))  # noqa: E731
        self.net = ss.Subspace(make, shape) if shape else make()
        self.penalty = self.net.penalty if shape else lambda: 0.0

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self(batch[0]), batch[1]) + self.penalty()

    def validation_step(self, batch, index):
        self.log("accuracy", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


images, labels = load_digits(return_X_y=True)
digits = random_split(TensorDataset(torch.tensor(images / 16).float(), torch.tensor(labels)), [1297, 500])
train, held_out = (DataLoader(part, batch_size=50, shuffle=part is digits[0], drop_last=True) for part in digits)
for module in (Digits(ss.Line()), LightningSubspace(Digits, ss.Line(), beta=1.0)):
    trainer = pl.Trainer(max_epochs=5, callbacks=[SubspaceCallback()], logger=False, enable_checkpointing=False)
    trainer.fit(module, train, held_out)
    print(f"the midpoint of {type(module).__name__}: {trainer.callback_metrics['accuracy']:.1%}")
