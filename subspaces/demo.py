"""The main job on data that ships with scikit-learn: two networks and one line, side by side.

The digits are few and small, so that everything trains in seconds, and two fifths of the training
labels are drawn at random, so that it matters how a network treats what it cannot know.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from subspaces import data
from subspaces.batchnorm import recalibrate
from subspaces.ensembles import Ensemble
from subspaces.evaluation import accuracy, expected_calibration_error
from subspaces.networks import MLP
from subspaces.shapes import Line
from subspaces.subspace import Subspace

BATCH = 128
TRAINING_IMAGES = 1200


@dataclass(frozen=True)
class Setting:
    """What the demo trains."""

    seeds: int = 5
    epochs: int = 60
    label_noise: float = 0.4
    learning_rate: float = 0.1
    weight_decay: float = 1e-4
    beta: float = 1.0

    def __post_init__(self) -> None:
        if self.seeds < 1 or self.epochs < 1:
            raise ValueError(f"seeds={self.seeds}, epochs={self.epochs}: expected at least 1 of each")
        if not 0 <= self.label_noise <= 1:
            raise ValueError(f"label_noise={self.label_noise}: expected a fraction between 0 and 1")

    @property
    def steps(self) -> int:
        """Gradient steps to train one network."""
        return self.epochs * -(-TRAINING_IMAGES // BATCH)


@dataclass(frozen=True)
class Row:
    """One line of the result: a way to predict, its quality for each seed and its cost."""

    name: str
    accuracy: Tensor  # [seeds]
    ece: Tensor  # [seeds]
    training_steps: int
    networks_at_test: int


@dataclass(frozen=True)
class Digits:
    """Images [n, 1, 8, 8] and labels [n]; some training labels are wrong, those of the test are not."""

    images: Tensor
    labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def digits(label_noise: float) -> Digits:
    """Load scikit-learn's digits; a fraction of the training labels is drawn uniformly, the same for everyone."""
    dataset = data.load("digits", label_noise=label_noise)

    def normalised(split: data.Images) -> Tensor:
        assert isinstance(split, data.Split)
        return (split.images / 255 - dataset.mean[0]) / dataset.std[0]

    train, test = dataset.train, dataset.test
    return Digits(normalised(train), train.labels, normalised(test), test.labels)


def train(model: nn.Module, images: Digits, setting: Setting, seed: int, tick: Callable[[], None]) -> nn.Module:
    """Train a network or a family with the same loop; a family differs by its penalty alone."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=setting.learning_rate, momentum=0.9, weight_decay=setting.weight_decay
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, setting.epochs)
    for _ in range(setting.epochs):
        for batch in torch.randperm(len(images.labels), generator=generator).split(BATCH):
            loss = F.cross_entropy(model(images.images[batch]), images.labels[batch])
            if isinstance(model, Subspace):
                loss = loss + model.penalty(setting.beta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tick()
        schedule.step()
    return model


def evaluate(model: nn.Module, images: Digits) -> tuple[float, float]:
    """Return test accuracy and ECE in percent, with fresh batch-norm statistics."""
    recalibrate(model, images.images.split(BATCH))
    model.eval()
    with torch.no_grad():
        output = model(images.test_images)
    probabilities = output if isinstance(model, Ensemble) else output.softmax(-1)
    labels = images.test_labels
    return 100 * accuracy(probabilities, labels), 100 * expected_calibration_error(probabilities, labels)


def run(setting: Setting, tick: Callable[[], None] = lambda: None) -> tuple[list[Row], Subspace]:
    """Train two networks and a line for every seed; return the table and the last line."""
    images = digits(setting.label_noise)
    results: dict[str, list[Tensor]] = {}
    for seed in range(setting.seeds):
        torch.manual_seed(seed)
        first, second = (train(MLP(), images, setting, seed + shift, tick) for shift in (0, 1000))
        family = Subspace(MLP, Line(), seed=seed)
        train(family, images, setting, seed, tick)
        ways: dict[str, list[nn.Module]] = {
            "a network": [first],
            "the line's ends": [family.at(0.0), family.at(1.0)],
            "the line's midpoint": [family.midpoint()],
            "two networks": [Ensemble([first, second])],
            "two points of the line": [family.ensemble([0.1, 0.9])],
        }
        for name, models in ways.items():
            scores = torch.tensor([evaluate(model, images) for model in models])  # [models, 2]
            results.setdefault(name, []).append(scores.mean(0))
    trained, used = (1, 1, 1, 2, 1), (1, 1, 1, 2, 2)
    rows = []
    for (name, by_seed), cost, networks in zip(results.items(), trained, used, strict=True):
        share, ece = torch.stack(by_seed).unbind(1)
        rows.append(Row(name, share, ece, cost * setting.steps, networks))
    return rows, family


def findings(rows: list[Row]) -> list[str]:
    """Say in words what the numbers show, seed by seed, whichever way they point."""
    standard, ends, midpoint, deep, line = rows
    comparisons = [(midpoint, standard), (midpoint, ends), (line, standard), (line, deep)]
    return [_compare(first, second) for first, second in comparisons]


def _compare(first: Row, second: Row) -> str:
    def phrase(difference: Tensor, unit: str, better_is: int) -> str:
        wins = int((difference * better_is > 0).sum())
        return f"{unit} {difference.mean():+.1f} points, better in {wins} of {len(difference)} seeds"

    return (
        f"{first.name} against {second.name}: "
        f"{phrase(first.accuracy - second.accuracy, 'accuracy', 1)}; {phrase(first.ece - second.ece, 'ECE', -1)}"
    )
