"""The time of a whole training step: batch, augmentation, forward, penalty, backward, optimiser.

cResNet20 on images of CIFAR-10's size, batch 128. All variants take turns in one run; a variant's
time is the median over the rounds, its ratio the median of the rounds' ratios to the engine's
standard step. Beside the engine: the same step as plain PyTorch with a DataLoader, a line whose layers mix
their own weights one at a time, and several runs at once on one GPU.

    python benchmarks/engine.py [--device cuda] [--rounds 20] [--steps 30] [--data DIR] [--json FILE]
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader, Dataset

from subspaces import data
from subspaces.networks import CResNet20
from subspaces.training.engine import Engine
from subspaces.training.environment import commit, environment
from subspaces.training.execution import Execution
from subspaces.training.recipe import Recipe
from subspaces.training.step import GRAPH_STEPS

METHODS = {
    "standard": Recipe(),
    "line": Recipe(method="line"),
    "curve": Recipe(method="curve"),
    "simplex 3": Recipe(method="simplex", vertices=3),
    "simplex 6": Recipe(method="simplex", vertices=6),
    "standard again": Recipe(),
}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Images(Dataset[tuple[Tensor, int]]):
    """Images one at a time, cropped, flipped and normalised on the host, as most training scripts do it."""

    def __init__(self, split: data.Split) -> None:
        self.images, self.labels = split.images.numpy(), split.labels.tolist()
        self.mean = np.array(MEAN, np.float32)[:, None, None]
        self.std = np.array(STD, np.float32)[:, None, None]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        top, left = np.random.randint(0, 9, 2)
        image = np.pad(self.images[index], ((0, 0), (4, 4), (4, 4)))[:, top : top + 32, left : left + 32]
        if np.random.rand() < 0.5:
            image = image[:, :, ::-1]
        return torch.from_numpy((image.astype(np.float32) / 255 - self.mean) / self.std), self.labels[index]


class Mix(nn.Module):
    """One layer's weight as a point of a line, whose second end it owns."""

    def __init__(self, other: Tensor) -> None:
        super().__init__()
        self.other = nn.Parameter(other)
        self.alpha = torch.tensor(0.5)

    def forward(self, weight: Tensor) -> Tensor:
        return (1 - self.alpha) * weight + self.alpha * self.other


def plain_step(dataset: data.Dataset, device: str, line: bool) -> Callable[[int], None]:
    """Return steps of an ordinary loop with a DataLoader; with `line`, every layer mixes its own weights."""
    split = dataset.train
    assert isinstance(split, data.Split)
    model, other = CResNet20(), CResNet20()
    mixes: list[Mix] = []
    ends: list[tuple[Tensor, Tensor]] = []  # of the weights that the penalty looks at
    if line:
        pairs = list(zip(model.modules(), other.modules(), strict=True))
        for module, twin in pairs:
            for name, parameter in list(twin.named_parameters(recurse=False)):
                mixes.append(Mix(parameter.detach().clone()))
                parametrize.register_parametrization(module, name, mixes[-1])
                if parameter.ndim > 1:
                    registered: Any = module.parametrizations
                    ends.append((registered[name].original, mixes[-1].other))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    workers = min(8, (os.cpu_count() or 2) - 1)
    loader = DataLoader(
        Images(split),
        128,
        shuffle=True,
        num_workers=workers,
        persistent_workers=True,
        pin_memory=device == "cuda",
    )

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from loader

    stream = batches()

    def penalty() -> Tensor:
        first, second = (torch.cat([end.flatten() for end in side]) for side in zip(*ends, strict=True))
        return F.cosine_similarity(first, second, dim=0).square()

    def run(steps: int) -> None:
        for _ in range(steps):
            x, y = (part.to(device, non_blocking=True) for part in next(stream))
            alpha = torch.rand(())
            for mix in mixes:
                mix.alpha = alpha.to(device)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = F.cross_entropy(model(x), y)
            loss = loss + penalty() if line else loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return run


def engine_step(engine: Engine) -> Callable[[int], None]:
    """Return steps of the engine, epoch after epoch."""
    sizes = engine.loader.sizes
    position = len(sizes)

    def run(steps: int) -> None:
        nonlocal position
        with torch.cuda.stream(engine.stream):
            while steps > 0:
                if position >= len(sizes):
                    engine.start_epoch()
                    position = 0
                taken = engine.advance(sizes, position)
                position += taken
                steps -= taken

    return run


def timed(run: Callable[[int], None], steps: int, device: str) -> float:
    """Return milliseconds per step."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run(steps)
    if device == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start) / steps


def load(folder: str | None) -> data.Dataset:
    """Return CIFAR-10, or random images of its size where it is not given."""
    if folder:
        return data.load("cifar10", folder)
    generator = torch.Generator().manual_seed(0)

    def split(n: int) -> data.Split:
        images = torch.randint(0, 256, (n, 3, 32, 32), dtype=torch.uint8, generator=generator)
        return data.Split(images, torch.randint(10, (n,), generator=generator))

    return data.Dataset("random", split(50_000), None, split(1000), tuple("abcdefghij"), MEAN, STD)


def together(dataset: data.Dataset, execution: Execution, counts: list[int], steps: int) -> dict[int, float]:
    """Return milliseconds per network-step of several lines trained at once, each on its own stream."""
    engines: list[Engine] = []
    result = {}
    for count in counts:
        engines += [Engine(Recipe(method="line", seed=i), dataset, execution) for i in range(len(engines), count)]
        runs = [engine_step(engine) for engine in engines]

        def turns(n: int, runs: list[Callable[[int], None]] = runs) -> None:
            for _ in range(n // GRAPH_STEPS):
                for run in runs:
                    run(GRAPH_STEPS)

        turns(GRAPH_STEPS)
        result[count] = median(timed(turns, steps, execution.device) for _ in range(5)) / count
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=30, help="steps of each variant in a round")
    parser.add_argument("--at-once", type=int, nargs="*", default=[], help="numbers of runs to train at once (GPU)")
    parser.add_argument("--no-plain", action="store_true", help="leave out the plain loops")
    parser.add_argument("--data", help="folder with CIFAR-10; random images otherwise")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    dataset = load(options.data)
    execution = Execution(device=options.device).resolved()
    runs: dict[str, Callable[[int], None]] = {
        name: engine_step(Engine(recipe, dataset, execution)) for name, recipe in METHODS.items()
    }
    if not options.no_plain:
        runs["plain loop, standard"] = plain_step(dataset, options.device, line=False)
        runs["plain loop, line layer by layer"] = plain_step(dataset, options.device, line=True)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(options.rounds + 1):
        for name, run in runs.items():
            milliseconds = timed(run, options.steps, options.device)
            if round_:  # the first round warms up
                times[name].append(milliseconds)
    rows: dict[str, dict[str, float]] = {}
    for name, spent in times.items():
        ratio = median(mine / standard for mine, standard in zip(spent, times["standard"], strict=True))
        rows[name] = {"ms": median(spent), "ratio": ratio}
        print(f"{name:32} {rows[name]['ms']:9.3f} ms   {ratio:7.3f} of standard")
    record: dict[str, Any] = {
        "commit": commit(),
        "environment": environment(execution),
        "data": dataset.name,
        "rows": rows,
    }
    if options.at_once:
        record["at_once"] = together(dataset, execution, options.at_once, options.steps)
        for count, milliseconds in record["at_once"].items():
            print(f"{count} lines at once: {milliseconds:.3f} ms per network-step")
    if options.json:
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
