"""A training loop as a user writes it, for a network or a family, on digits, MNIST and CIFAR-10 in small settings.

Stochastic gradient descent with momentum 0.9 and weight decay 1e-4 on batches of 128, as in the recipes: the learning
rate rises over the first epochs to its peak and falls along half a cosine. Images are not augmented. Whatever is
measured gets batch-norm statistics from one pass over the training images.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import subspaces as ss
from subspaces.evaluation.files import commit, processor, write_plain_json
from subspaces.experiments import data
from subspaces.experiments.methods.rates import warmup_cosine
from subspaces.networks import MLP, CResNet, LeNet

Batches = list[tuple[Tensor, Tensor]]
METRICS = ("accuracy", "ece", "nll")
BATCH = 128


def cresnet8() -> nn.Module:
    """Return the cResNet with one block in each stage."""
    return CResNet(8).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True)
class Setting:
    """The network of a data set, and how it is trained."""

    network: Callable[[], nn.Module]
    images: int  # the first so many of the training set
    epochs: int
    warmup: int  # epochs in which the learning rate rises
    rate: float = 0.1
    bfloat16: bool = False  # autocast in training

    def described(self) -> dict[str, Any]:
        """Return what a result file says of it."""
        return {**asdict(self), "network": self.network.__name__}


SETTINGS = {
    "digits": Setting(MLP, images=1200, epochs=60, warmup=5),
    "mnist": Setting(LeNet, images=10_000, epochs=10, warmup=2, rate=0.025),  # some do not bear 0.1
    "cifar10": Setting(cresnet8, images=10_000, epochs=6, warmup=2, bfloat16=True),
}


@dataclass(frozen=True)
class Images:
    """Training images [n, …] with their labels, and batches of both splits."""

    inputs: Tensor
    labels: Tensor
    train: Batches
    test: Batches


def load(name: str, folder: Path | None, count: int, noise: float = 0.0) -> Images:
    """Return the first `count` training images and all test images, normalised; a share of the labels is random."""
    whole = data.load(name, folder)
    few = replace(whole, train=whole.train.select(torch.arange(min(count, len(whole.train)))))
    few = data.with_label_noise(few, noise, seed=0)

    def tensors(split: Any) -> tuple[Tensor, Tensor]:
        mean, std = (torch.tensor(each)[:, None, None] for each in (few.mean, few.std))
        return (split.images / 255 - mean) / std, split.labels

    (inputs, labels), test = tensors(few.train), tensors(few.test)
    cut = [list(zip(x.split(BATCH), y.split(BATCH), strict=True)) for x, y in ((inputs, labels), test)]
    return Images(inputs, labels, *cut)


def train(model: nn.Module, images: Images, setting: Setting, seed: int) -> float:
    """Train a network or a family in place; return the mean loss of the last epoch, without the penalty."""
    optimizer = torch.optim.SGD(model.parameters(), lr=setting.rate, momentum=0.9, weight_decay=1e-4)
    schedule = LambdaLR(optimizer, lambda epoch: warmup_cosine(epoch, setting.epochs, 1.0, setting.warmup))
    orders = torch.Generator().manual_seed(seed)
    losses: list[Tensor] = []
    model.train()
    for _ in range(setting.epochs):
        losses.clear()
        for index in torch.randperm(len(images.labels), generator=orders).split(BATCH):
            with torch.autocast("cpu", torch.bfloat16, enabled=setting.bfloat16):
                loss = F.cross_entropy(model(images.inputs[index]), images.labels[index])
            losses.append(loss.detach())
            if isinstance(model, ss.Subspace):
                loss = loss + model.penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return float(torch.stack(losses).mean())


def measure(network: nn.Module, images: Images) -> dict[str, float]:
    """Return accuracy, ECE and NLL on the test images, with batch-norm statistics of the training images."""
    network = ss.recalibrate(network, images.train).eval()
    evaluation = ss.evaluate(network, test=images.test, progress=False)
    row = evaluation[evaluation.answers[0].name]
    return {metric: getattr(row, metric) for metric in METRICS}


def options(description: str | None) -> argparse.ArgumentParser:
    """Return the options of both measurements."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits", choices=list(SETTINGS))
    parser.add_argument("--data", type=Path, help="the folder of the publisher's files, for all but digits")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, help="other than those of the data set")
    parser.add_argument("--images", type=int, help="train on the first so many, other than those of the data set")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    return parser


def setting_of(given: argparse.Namespace) -> Setting:
    """Return the setting of the data set with what was given instead."""
    other = {name: value for name in ("epochs", "images") if (value := getattr(given, name)) is not None}
    return replace(SETTINGS[given.dataset], **other)


class Record:
    """Rows of numbers, each printed and written to a file as soon as it is known."""

    def __init__(self, given: argparse.Namespace, setting: Setting, command: str) -> None:
        self.path, self.rows = given.json, []  # type: Path | None, list[dict[str, Any]]
        where = {"commit": commit(), "hardware": processor(), "torch": torch.__version__, "subspaces": ss.__version__}
        about = {"dataset": given.dataset, "setting": setting.described(), "threads": torch.get_num_threads()}
        self.content = {"command": command, **where, **about, "rows": self.rows}

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else str(v) for k, v in row.items()), flush=True)
        if self.path is not None:
            write_plain_json(self.path, self.content)
