"""Metrics against independent implementations."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score

from subspaces.evaluation import accuracy, expected_calibration_error


def predictions(n: int = 500, classes: int = 7, sharpness: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = sharpness * torch.randn(n, classes, generator=generator)
    return logits.softmax(-1), torch.randint(classes, (n,), generator=generator)


def slow_ece(probabilities: torch.Tensor, labels: torch.Tensor, bins: int) -> float:
    confidence, prediction = (t.numpy() for t in probabilities.double().max(-1))
    correct = prediction == labels.numpy()
    index = np.minimum((confidence * bins).astype(int), bins - 1)
    total = 0.0
    for b in range(bins):
        members = index == b
        if members.any():
            total += members.mean() * abs(correct[members].mean() - confidence[members].mean())
    return total


def test_accuracy_is_scikit_learns() -> None:
    probabilities, labels = predictions()
    assert accuracy(probabilities, labels) == pytest.approx(accuracy_score(labels, probabilities.argmax(-1)), abs=1e-7)


@pytest.mark.parametrize("bins", [1, 15, 20])
@pytest.mark.parametrize("sharpness", [0.1, 2.0, 30.0])
def test_ece_is_that_of_a_loop_in_float64(bins: int, sharpness: float) -> None:
    probabilities, labels = predictions(sharpness=sharpness)
    assert expected_calibration_error(probabilities, labels, bins) == pytest.approx(
        slow_ece(probabilities, labels, bins), abs=1e-5
    )


def test_full_confidence_belongs_to_the_last_bin() -> None:
    probabilities = torch.tensor([[1.0, 0.0], [0.96, 0.04]])
    labels = torch.tensor([0, 1])
    assert expected_calibration_error(probabilities, labels) == pytest.approx(abs(0.5 - 0.98), abs=1e-6)
