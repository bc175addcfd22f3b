"""Small data, networks, recipes and runs that the tests of training share."""

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from helpers import dropped  # noqa: F401  # the network `training_cases:dropped`
from safetensors import safe_open
from torch import Tensor, nn

from subspaces.experiments import data
from subspaces.experiments.training import Execution, Recipe, Run
from subspaces.experiments.training.display import Display
from subspaces.experiments.training.engine import Engine
from subspaces.experiments.training.scheduling import train_group

CPU = Execution(device="cpu", evaluate_every=0).resolved()
TIMING = ("images_per_second",)

DIGITS = Recipe(
    name="small", dataset="digits", network="mlp", epochs=3, batch=200, pad=0, flip=False, learning_rate=0.05
)


def make_mlp() -> nn.Module:
    """The network of DIGITS, as `ss.load` wants it."""
    from subspaces.networks import MLP

    return MLP(64, 10)


def convolutional(classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(image_shape[0], 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, classes),
    )


@functools.cache
def digits() -> data.Dataset:
    return data.load("digits")


def made_dataset(train: int = 90, test: int = 30, channels: int = 1, side: int = 8, classes: int = 5) -> data.Dataset:
    """Random images whose brightness tells the class, so that there is something to learn."""
    generator = torch.Generator().manual_seed(0)

    def split(n: int) -> data.Split:
        labels = torch.arange(n) % classes
        noise = torch.randint(0, 100, (n, channels, side, side), generator=generator)
        return data.Split((noise + 30 * labels[:, None, None, None]).to(torch.uint8), labels)

    names = tuple(map(str, range(classes)))
    return data.Dataset("made", split(train), None, split(test), names, (0.4,) * channels, (0.2,) * channels)


def nothing(*_: Any) -> None:
    """Report or tick to nobody."""


@torch.no_grad()
def accuracy(network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """The share of right predictions."""
    found = [network(x).argmax(1) == y for x, y in batches]
    return int(torch.cat(found).sum()) / len(torch.cat(found))


class Watch(Display):
    """Calls functions instead of showing anything."""

    def __init__(
        self,
        report: Callable[..., None] = nothing,
        tick: Callable[..., None] = nothing,
        begin: Callable[..., None] = nothing,
    ) -> None:
        super().__init__()
        self.report, self.tick, self.begin = report, tick, begin  # type: ignore[method-assign]


def train_runs(
    runs: Sequence[Run],
    dataset: data.Dataset,
    execution: Execution,
    report: Callable[..., None] = nothing,
    tick: Callable[..., None] = nothing,
    held: dict[Run, str] | None = None,
    begin: Callable[..., None] = nothing,
) -> None:
    """Train runs on one data set, and raise the first failure."""
    for failure in train_group(runs, dataset, execution, Watch(report, tick, begin), {} if held is None else held):
        raise failure


def train_one(
    recipe: Recipe,
    out: Path,
    dataset: data.Dataset | None = None,
    execution: Execution = CPU,
    report: Callable[..., None] = nothing,
    tick: Callable[..., None] = nothing,
) -> Run:
    """Train one recipe as `ss.train` does, and return its run."""
    run = Run.under(out, recipe)
    train_runs([run], digits() if dataset is None else dataset, execution, report, tick)
    return run


class Interrupted(Exception):
    """What ends a training without a word."""


def interrupt() -> None:
    raise Interrupted


class Countdown:
    """A tick that calls `action` once, when so many steps are done."""

    def __init__(self, steps: int, action: Callable[[], None]) -> None:
        self.left = steps
        self.action = action

    def __call__(self, run: Run, steps: int) -> None:
        before, self.left = self.left, self.left - steps
        if before > 0 >= self.left:
            self.action()


def contents(path: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """Header and tensors of a safetensors file, byte for byte."""
    with safe_open(path, framework="pt") as file:
        names = sorted(file.keys())
        return file.metadata(), {name: file.get_tensor(name).numpy().tobytes() for name in names}


def rows(run: Run) -> list[dict[str, Any]]:
    """The log without what depends on the clock."""
    return [without_timing(row) for row in run.log()]


def without_timing(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in TIMING}


def assert_same_end(actual: Run, expected: Run) -> None:
    """Both runs are finished and bitwise the same."""
    assert actual.finished
    assert expected.finished
    assert rows(actual) == rows(expected)
    assert without_timing(actual.result) == without_timing(expected.result)
    assert contents(actual.family_file) == contents(expected.family_file)


def run_epochs(engine: Engine, epochs: Iterable[int]) -> None:
    """Drive an engine by hand through whole epochs."""
    with torch.cuda.stream(engine.stream):
        for epoch in epochs:
            engine.set_epoch(epoch)
            engine.start_epoch()
            run_steps(engine, len(engine.loader.sizes))


def run_steps(engine: Engine, steps: int, done: int = 0) -> int:
    """Take at least so many steps within an epoch and return how many are done."""
    with torch.cuda.stream(engine.stream):
        while done < steps:
            done += engine.step.advance(engine.loader.sizes, done)
    return done


def copy_state(engine: Engine) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in engine.state().items()}


def jsonl(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
