"""A run's points measured without the evaluation's own code, and small families and batches that were drawn."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from torch import Tensor, nn

import subspaces as ss
from subspaces.evaluation import Row
from subspaces.evaluation.classification import Classes
from subspaces.experiments import data
from subspaces.experiments.training import Execution, Run
from subspaces.experiments.training.batches import statistics_batches
from subspaces.networks import MLP

CPU = Execution(device="cpu").resolved()
Array = NDArray[np.float64]
Runs = Callable[..., list[Path]]


def certainly(probabilities: torch.Tensor) -> Classes:
    """Return given probabilities as a prediction, without the rounding of their logarithm."""
    made = Classes(probabilities.log())
    made.probabilities = probabilities
    made.top = tuple(probabilities.max(-1))
    return made


def about(row: Row) -> tuple[str, ...]:
    """Which networks answered."""
    return tuple(map(str, (row.kind, row.role, row.alphas, row.average, row.networks)))


def evaluate(*folders: Path, **settings: Any) -> list[ss.Evaluation]:
    return ss.evaluate(folders, device="cpu", **{"progress": False, "trust": True, **settings})


class Independent:
    """Predictions of a run's points without the evaluation's own code."""

    def __init__(self, folder: Path) -> None:
        self.recipe = Run.open(folder).recipe
        self.family = ss.load(folder / "family.safetensors", lambda: MLP(64, 10))
        recipe = self.recipe
        self.dataset = data.load(
            "digits", label_noise=recipe.label_noise, validation=recipe.validation, seed=recipe.data_seed
        )

    def network(self, alpha: Any) -> torch.nn.Module:
        network = self.family.at(alpha, outside=True)
        return ss.recalibrate(network, statistics_batches(self.recipe, self.dataset, CPU)).eval()

    @torch.no_grad()
    def predict(self, alpha: Any, split: str) -> Array:
        """Return logits in float64."""
        network = self.network(alpha)
        images = getattr(self.dataset, split).images.float() / 255
        logits: torch.Tensor = network((images - self.dataset.mean[0]) / self.dataset.std[0])
        return logits.double().numpy()

    def labels(self, split: str) -> NDArray[np.int64]:
        return getattr(self.dataset, split).labels.numpy()  # type: ignore[no-any-return]


def softmax(logits: Array) -> Array:
    exponential = np.exp(logits - logits.max(1, keepdims=True))
    return exponential / exponential.sum(1, keepdims=True)


def calibration(confidence: Array, correct: Array, bins: list[NDArray[Any]]) -> float:
    return sum(len(b) / len(correct) * abs(correct[b].mean() - confidence[b].mean()) for b in bins if len(b))


def expected_metrics(p: Array, labels: NDArray[np.int64]) -> dict[str, float]:
    confidence, correct = p.max(1), (p.argmax(1) == labels).astype(float)
    equal_width = [np.flatnonzero(np.minimum((confidence * 20).astype(int), 19) == b) for b in range(20)]
    order = np.argsort(-confidence, kind="stable")
    equal_mass = [order[b * len(order) // 20 : (b + 1) * len(order) // 20] for b in range(20)]
    risks = [1 - correct[order[: k + 1]].mean() for k in range(len(order))]
    return {
        "accuracy": accuracy_score(labels, p.argmax(1)),
        "nll": log_loss(labels, p, labels=range(10)),
        "brier": brier_score_loss(labels, p, labels=range(10), scale_by_half=False),
        "ece": calibration(confidence, correct, equal_width),
        "adaptive_ece": calibration(confidence, correct, equal_mass),
        "aurc": float(np.mean(risks)),
    }


def check(row: Row, outputs: Sequence[Array], labels: NDArray[np.int64]) -> None:
    """Compare a row with the logits of its members."""
    members, n = [softmax(each) for each in outputs], len(labels)
    p = softmax(np.mean(outputs, 0)) if row.average == "logits" else np.mean(members, 0)
    assert (row.count, row.networks) == (n, len(outputs))
    # Rounding may put a confidence on the other side of a border between bins: 1/n for each.
    slack = {"ece": 2 / n, "adaptive_ece": 2 / n}
    for name, value in expected_metrics(p, labels).items():
        assert row.metrics[name] == pytest.approx(value, abs=slack.get(name, 2e-5)), (row.alphas, name)
    confidence, right = p.max(1), p.argmax(1) == labels
    bins, found = np.minimum((confidence * 20).astype(int), 19), row.reliability
    counts = np.bincount(bins, minlength=20)
    assert found is not None
    assert np.abs(counts - found.count).max() <= 1
    for b in np.flatnonzero((counts > 0) & (counts == found.count)):
        assert found.confidence[b] == pytest.approx(confidence[bins == b].mean(), abs=1e-5)
        assert found.accuracy[b] == pytest.approx(right[bins == b].mean(), abs=1e-9)
    pairs = list(itertools.combinations(members, 2))
    assert (row.diversity is None) == (row.kind == "point") == (row.average is None)
    if row.diversity is not None:
        assert row.diversity == {
            "tv": pytest.approx(np.mean([np.abs(a - b).sum(-1).mean() / 2 for a, b in pairs]), abs=1e-5),
            "disagreement": pytest.approx(np.mean([(a.argmax(-1) != b.argmax(-1)).mean() for a, b in pairs]), abs=1e-9),
        }


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
