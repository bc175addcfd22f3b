"""A line whose batch-norm statistics are kept fresh: what it costs a step, and how good it is without a recalibration.

A plain training loop with SGD, a learning rate that falls to zero, and a family made with statistics_every = 1, 5, 10,
50 or not at all. After each epoch the family is asked in eval mode as it is, and its midpoint once more after a
full recalibration: the difference of the two accuracies is what the statistics are worth. The time of a step is that
of fifty steps, the variants taking turns, over those without.

    python benchmarks/batchnorm.py [--data-set cifar10 --data DIR --device cuda --epochs 20] [--seeds 3] [--json FILE]
"""

import argparse
import itertools
import json
import math
import time
import warnings
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import subspaces as ss
from subspaces.core.memory import keep_memory
from subspaces.evaluation.files import commit, processor
from subspaces.experiments import data
from subspaces.experiments.training.batches import evaluation_batches, training_batches
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import Recipe
from subspaces.networks import CResNet20

EVERY = (None, 1, 5, 10, 50)
TURN = 50


def small() -> nn.Module:
    """Return a network with batch norm for the digits."""
    widths = (1, 16, 32, 32)
    parts = [
        [nn.Conv2d(a, b, 3, 1 + (b > 16), 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        for a, b in itertools.pairwise(widths)
    ]
    return nn.Sequential(*itertools.chain(*parts), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


class Run:
    """One line in training."""

    def __init__(self, every: int | None, seed: int, options: argparse.Namespace, dataset: data.Dataset) -> None:
        self.recipe = Recipe(
            dataset=options.data_set, network="cresnet20" if dataset.image_shape[0] == 3 else "lenet", seed=seed
        )
        execution = Execution(device=options.device, resident=True).resolved()
        self.loader = training_batches(self.recipe, dataset, execution)
        self.test = evaluation_batches(dataset.test, self.recipe, dataset, execution)
        self.device, self.bf16 = options.device, options.device == "cuda"
        torch.manual_seed(seed)

        make = CResNet20 if dataset.image_shape[0] == 3 else small
        self.family = ss.Subspace(make, ss.Line(), seed=seed, statistics_every=every).to(options.device)
        self.optimizer = torch.optim.SGD(self.family.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
        self.total = options.epochs * len(self.loader.sizes)
        self.done = 0

    def step(self, size: int) -> None:
        """Train on the next batch."""
        x, y = self.loader.take(size)
        for group in self.optimizer.param_groups:
            group["lr"] = 0.05 * (1 + math.cos(math.pi * min(1.0, self.done / self.total)))
        with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
            logits = self.family(x)
        loss = F.cross_entropy(logits.float(), y) + self.family.penalty()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.done += 1

    def epoch(self) -> None:
        """Train on all images once."""
        self.loader.start_epoch()
        for size in self.loader.sizes:
            self.step(size)

    @torch.no_grad()
    def accuracy(self, network: nn.Module) -> float:
        """Return the accuracy in percent on the test images."""
        network.eval()
        right = count = 0
        with warnings.catch_warnings(), torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
            warnings.simplefilter("ignore")  # that statistics are noise is what is measured
            for x, y in self.test:
                right += int((network(x).argmax(1) == y).sum())
                count += len(y)
        return 100 * right / count

    def recalibrated(self) -> float:
        """Return the accuracy of the midpoint with statistics of all training images."""
        network = self.family.midpoint()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.bf16):
            ss.recalibrate(network, self.loader)
        return self.accuracy(network)


def measure_accuracy(options: argparse.Namespace, dataset: data.Dataset) -> dict[str, Any]:
    """Return by variant and seed the accuracies after each epoch, as it is and recalibrated."""
    found: dict[str, Any] = {}
    for every in EVERY:
        found[str(every)] = []
        for seed in range(options.seeds):
            run = Run(every, seed, options, dataset)
            pairs = []
            for _ in range(options.epochs):
                run.epoch()
                pairs.append((run.accuracy(run.family), run.recalibrated()))
                run.family.train()
            found[str(every)].append(pairs)
            shown = "  ".join(f"{a:.1f}/{b:.1f}" for a, b in pairs[-4:])
            print(f"every {every!s:4} seed {seed}: as it is / recalibrated … {shown}", flush=True)
    return found


def measure_steps(options: argparse.Namespace, dataset: data.Dataset) -> dict[str, list[float]]:
    """Return by variant the seconds of a step in each round."""
    runs = {str(every): Run(every, 0, options, dataset) for every in EVERY}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(options.rounds + 1):
        for name, run in runs.items():
            run.loader.start_epoch()
            run.family.train()
            start = time.perf_counter()
            for _ in range(TURN):
                if int(run.loader.position) + run.recipe.batch > len(dataset.train.labels):
                    run.loader.start_epoch()
                run.step(run.recipe.batch)
            if options.device == "cuda":
                torch.cuda.synchronize()
            if round_:
                seconds[name].append((time.perf_counter() - start) / TURN)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-set", default="digits")
    parser.add_argument("--data", help="the folder with the data set's files")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    keep_memory()
    dataset = data.load(options.data_set, options.data)
    seconds = measure_steps(options, dataset)
    accuracies = measure_accuracy(options, dataset)
    rows = {}
    for name, runs in accuracies.items():
        last = [pairs[-1] for pairs in runs]
        gaps = [recalibrated - plain for pairs in runs for plain, recalibrated in pairs]
        ratios = [mine / none for mine, none in zip(seconds[name], seconds["None"], strict=True)]
        rows[name] = {
            "step": median(ratios),
            "milliseconds": 1000 * median(seconds[name]),
            "as it is": mean(plain for plain, _ in last),
            "recalibrated": mean(recalibrated for _, recalibrated in last),
            "gap over epochs": mean(gaps),
            "gap's standard deviation": stdev(gaps),
            "largest gap": max(gaps, key=abs),
        }
        print(name, {key: round(value, 3) for key, value in rows[name].items()})
    if options.json:
        hardware = torch.cuda.get_device_name() if options.device == "cuda" else processor()
        settings = {key: value for key, value in vars(options).items() if key not in ("json", "data")}
        made = {"commit": commit(), "hardware": hardware, "torch": torch.__version__, "settings": settings}
        options.json.write_text(json.dumps({**made, "rows": rows, "accuracies": accuracies}, indent=2) + "\n")


if __name__ == "__main__":
    main()
