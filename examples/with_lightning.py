"""A line of networks in Lightning: a module that holds a family, trained, and evaluated at the midpoint."""

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import subspaces as ss
from subspaces.integrations.lightning import SubspaceCallback


class Digits(pl.LightningModule):  # noqa: D101
    def __init__(self) -> None:
        super().__init__()
        make = lambda: nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))  # noqa: E731
        self.net = ss.Subspace(make, ss.Line())

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1]) + self.net.penalty(beta=1.0)

    def validation_step(self, batch, index):
        self.log("accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        groups = self.net.parameter_groups(others={"weight_decay": 0})
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=1e-4)


images, labels = load_digits(return_X_y=True)
digits = random_split(TensorDataset(torch.tensor(images / 16).float(), torch.tensor(labels)), [1297, 500])
train, held_out = (DataLoader(part, batch_size=50, shuffle=part is digits[0], drop_last=True) for part in digits)
module = Digits()
trainer = pl.Trainer(max_epochs=5, callbacks=[SubspaceCallback()], logger=False, enable_checkpointing=False)
trainer.fit(module, train, held_out)
net = module.net.midpoint()  # an ordinary network, with batch-norm statistics of its own
print(f"the midpoint: {trainer.callback_metrics['accuracy']:.1%}")
