"""Temperature scaling: what it fits, to which examples, and what it changes."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from torch import Tensor, nn

import subspaces as ss
from subspaces.evaluation.classification import temperature


def fitted(logits: Tensor, labels: Tensor) -> float:
    """Return the temperature that scipy finds."""
    scores, right = logits.double().numpy(), labels.numpy()

    def loss(log_t: float) -> float:
        z = scores / math.exp(log_t)
        return float((logsumexp(z, 1) - z[np.arange(len(z)), right]).mean())

    return math.exp(minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-10}).x)


def calibrated(scale: float, count: int = 2000, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return labels that are drawn from some logits, and those logits times a scale."""
    logits = 2 * torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))
    labels = torch.multinomial(logits.softmax(1), 1, generator=torch.Generator().manual_seed(seed)).squeeze(1)
    return scale * logits, labels


@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_the_temperature_is_scipys_and_undoes_a_scale(scale: float) -> None:
    logits, labels = calibrated(scale)
    found = temperature(logits.log_softmax(1), labels)
    assert found == pytest.approx(fitted(logits, labels), rel=1e-5)
    assert found == pytest.approx(scale, rel=0.1)


def test_scaling_keeps_the_accuracy_helps_the_likelihood_and_knows_nothing_of_the_test_labels() -> None:
    held, test = calibrated(4.0, 500, seed=1), calibrated(4.0, 700, seed=2)
    torch.manual_seed(2)
    family = ss.Subspace(lambda: nn.Linear(5, 5), ss.Line())
    with torch.no_grad():
        for group in family.layout.groups:  # networks that are almost right, so that temperatures are not extreme
            family.omega[group.name] += group.pack({"weight": 2 * torch.eye(5), "bias": torch.zeros(5)})

    def evaluated(labels: Tensor) -> ss.Evaluation:
        batches = list(zip(test[0].split(300), labels.split(300), strict=True))
        return ss.evaluate(family, test=batches, validation=[held], grid=(0.1,), progress=False)

    found, other = evaluated(test[1]), evaluated(test[1].roll(1))
    assert {row.scaled for row in found.rows if row.split == "validation"} == {None}
    rows = [row for row in found.rows if row.split == "test"]
    assert len(rows) == 3 + 2 * 2
    for row, same in zip(rows, (row for row in other.rows if row.split == "test"), strict=True):
        assert row.scaled is not None
        assert same.scaled is not None
        t = row.scaled["temperature"]
        assert same.scaled["temperature"] == t
        assert row.scaled["accuracy"] == row.accuracy
        assert row.scaled.keys() == {*row.metrics, "temperature"}
        with torch.no_grad():
            outs = [[family.at(alpha)(x).double() for alpha in row.alphas] for x in (held[0], test[0])]
        logs = [
            torch.stack(out).mean(0).log_softmax(1)
            if row.average == "logits"
            else torch.stack(out).softmax(-1).mean(0).log()
            for out in outs
        ]
        assert t == pytest.approx(fitted(logs[0], held[1]), rel=1e-4)
        before, after = (float(nn.functional.cross_entropy(logs[0] / d, held[1])) for d in (1.0, t))
        assert after <= before
        assert row.scaled["nll"] == pytest.approx(float(nn.functional.cross_entropy(logs[1] / t, test[1])), abs=1e-5)


def test_without_validation_examples_nothing_is_scaled() -> None:
    found = ss.evaluate(nn.Identity(), test=[calibrated(2.0, 50)], progress=False)
    assert [row.scaled for row in found.rows] == [None]
