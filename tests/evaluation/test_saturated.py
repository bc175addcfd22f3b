"""Networks that are very sure: their numbers against an implementation of numpy and scipy in float64."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import entr, logsumexp, softmax
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import subspaces as ss
from subspaces.evaluation.classification import log_mean

Array = NDArray[np.float64]


class Given(nn.Module):
    """Returns the logits of one of several networks, which are its input [n, networks, classes]."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x[:, self.number]


def logits(apart: float, n: int = 3000, classes: int = 4, seed: int = 0) -> Tensor:
    """Return the logits of two networks, whose classes are so far apart that many of their probabilities are 1."""
    generator = torch.Generator().manual_seed(seed)
    sure = torch.rand(n, 2, 1, generator=generator) * apart
    return sure * torch.randint(3, (n, 2, classes), generator=generator)


def log_softmax(values: Array) -> Array:
    return values - logsumexp(values, axis=-1, keepdims=True)


def log_average(values: Array) -> Array:
    return logsumexp(log_softmax(values), axis=1) - np.log(values.shape[1])


def aurc(p: Array, labels: NDArray[np.int64]) -> float:
    """Return the mean error among the most confident, where equal confidences share their error."""
    confidence, wrong = p.max(1), (p.argmax(1) != labels).astype(float)
    shared = {value: wrong[confidence == value].mean() for value in np.unique(confidence)}
    ordered = np.array([shared[value] for value in -np.sort(-confidence)])
    return float((ordered.cumsum() / np.arange(1, len(ordered) + 1)).mean())


@pytest.mark.parametrize(("apart", "dtype"), [(10, torch.float32), (40, torch.float32), (60, torch.float64)])
def test_metrics_of_sure_networks_are_those_of_float64(apart: float, dtype: torch.dtype) -> None:
    x, far = logits(apart).to(dtype), logits(apart / 2, seed=1).to(dtype)
    labels = torch.randint(4, (len(x),), generator=torch.Generator().manual_seed(2))
    networks = [Given(0).to(dtype), Given(1).to(dtype)]
    found = ss.evaluate(networks, test=[(x, labels)], outliers=[far], progress=False)
    exact, y = x.double().numpy(), labels.numpy()
    alone = next(row for row in found.rows if row.kind == "point")
    for row, each in ((found["vertices"], exact), (alone, exact[:, :1])):
        p, logs = softmax(each, -1).mean(1), log_average(each)
        assert row.accuracy == (p.argmax(1) == y).mean()
        assert row.nll == pytest.approx(-logs[np.arange(len(y)), y].mean(), rel=1e-12)
        assert row.brier == pytest.approx(((p - np.eye(4)[y]) ** 2).sum(1).mean(), rel=1e-12)
        assert row.aurc == pytest.approx(aurc(p, y), abs=1e-4)  # probabilities may differ in their last digit
    means = [softmax(each.double().numpy(), -1).mean(1) for each in (x, far)]
    inside, measured = np.repeat([1, 0], [len(each) for each in means]), found.row("vertices", "outliers")
    sure, mixed = (
        np.concatenate([of(each) for each in means]) for of in (lambda p: p.max(1), lambda p: -entr(p).sum(1))
    )
    assert measured.auroc_probability == pytest.approx(roc_auc_score(inside, sure), abs=2e-4)
    assert measured.auroc_entropy == pytest.approx(roc_auc_score(inside, mixed), abs=2e-4)


@pytest.mark.parametrize("members", [1, 2, 5])
def test_log_mean_is_scipys(members: int) -> None:
    values = torch.randn(members, 50, 7, generator=torch.Generator().manual_seed(0)) * 60
    exact = values.double().numpy().transpose(1, 0, 2)
    assert log_mean(values).dtype == torch.float64
    np.testing.assert_allclose(log_mean(values), log_average(exact), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(log_mean(values, "logits"), log_softmax(exact.mean(1)), rtol=1e-13, atol=1e-13)
    values[:, :, 0] = -torch.inf  # a class that is masked
    assert log_mean(values)[:, 0].isneginf().all()
