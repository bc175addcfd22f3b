"""Metrics and temperatures against independent implementations, also of networks that are very sure."""

import itertools
import math

import numpy as np
import pytest
import torch
from evaluation_cases import certainly
from helpers import Wrapped
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax
from torch import Tensor, nn

import subspaces as ss
from subspaces.evaluation.classification import BINS, Classes, in_bins, log_mean, temperature, to_reliability
from subspaces.evaluation.metrics import METRICS, of_task, tally
from subspaces.evaluation.rows import Reliability

quick = settings(max_examples=60, deadline=None)


def measured(name: str, probabilities: Tensor, labels: Tensor) -> float:
    return METRICS[name](certainly(probabilities), labels)


def reliability(probabilities: Tensor, labels: Tensor) -> Reliability:
    return to_reliability(in_bins(certainly(probabilities), labels))


def summary(log_probabilities: Tensor, labels: Tensor) -> dict[str, float]:
    return tally(of_task("classification"), [(Classes(log_probabilities), labels)])


def predictions(n: int = 500, right: float = 0.0, classes: int = 7) -> tuple[Tensor, Tensor]:
    """Return probabilities and labels; a share `right` of the labels is the predicted class."""
    generator = torch.Generator().manual_seed(3)
    logits = 2 * torch.randn(n, classes, generator=generator)
    labels = torch.randint(classes, (n,), generator=generator)
    known = torch.rand(n, generator=generator) < right
    return logits.softmax(-1), torch.where(known, logits.argmax(-1), labels)


@st.composite
def small(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Few examples of few classes from few values, so that confidences are often equal, on a border or exactly 1."""
    n, classes = draw(st.integers(1, 30)), draw(st.integers(1, 4))
    values = st.sampled_from([0, 1, 3, 5, 10**9])
    weights = draw(st.lists(st.lists(values, min_size=classes, max_size=classes), min_size=n, max_size=n))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
    tensor = torch.tensor(weights, dtype=torch.float64) + 1e-12
    return (tensor / tensor.sum(1, keepdim=True)).float(), torch.tensor(labels)


def slow_adaptive_ece(probabilities: Tensor, labels: Tensor) -> float:
    confidence, prediction = probabilities.double().max(-1)
    pairs = list(zip(confidence.tolist(), (prediction == labels).tolist(), strict=True))
    shared = {value: np.mean([right for other, right in pairs if other == value]) for value, _ in pairs}
    queue = sorted(((value, shared[value]) for value, _ in pairs), reverse=True)
    bins, total = min(BINS, len(pairs)), 0.0
    for b in range(bins):
        members = queue[b * len(pairs) // bins : (b + 1) * len(pairs) // bins]
        total += len(members) / len(pairs) * abs(np.mean([right - value for value, right in members]))
    return float(total)


@pytest.mark.parametrize("calibration_error", ["ece", "adaptive_ece"])
def test_calibration_errors_of_many_equal_confidences_are_precise(calibration_error: str) -> None:
    probabilities = torch.tensor([[0.9985, 0.0015]]).expand(50_000, 2)
    labels = (torch.arange(50_000) % 100 == 0).long()
    gap = float(probabilities[0, 0].double()) - 0.99
    assert measured(calibration_error, probabilities, labels) == pytest.approx(gap, rel=1e-9)


def test_labels_are_not_broadcast() -> None:
    with pytest.raises(ValueError, match=r"labels of shape \(1,\): expected one for each of 500 predictions"):
        measured("accuracy", predictions()[0], torch.tensor([1]))


def test_a_confidence_on_a_border_belongs_to_the_bin_above() -> None:
    probabilities = torch.tensor([[0.5, 0.5], [0.75, 0.25], [0.7499, 0.2501]])
    binned = reliability(probabilities, torch.tensor([0, 1, 0]))
    assert {b: count for b, count in enumerate(binned.count) if count} == {10: 1, 14: 1, 15: 1}
    assert (binned.accuracy[10], binned.confidence[15]) == (1.0, 0.75)
    assert binned.accuracy[0] is binned.confidence[0] is None


@given(small())
@quick
def test_the_reliability_gives_the_ece_and_a_loop_the_adaptive_one(case: tuple[Tensor, Tensor]) -> None:
    binned, n = reliability(*case), len(case[1])
    assert sum(binned.count) == n
    each = zip(binned.count, binned.accuracy, binned.confidence, strict=True)
    gaps = [count * abs(right - sure) / n for count, right, sure in each if right is not None and sure is not None]
    assert len(gaps) == sum(count > 0 for count in binned.count)
    assert sum(gaps) == pytest.approx(measured("ece", *case), abs=1e-14)
    for b, confidence in enumerate(binned.confidence):
        assert confidence is None or b / BINS - 1e-12 <= confidence <= (b + 1) / BINS + 1e-12
    assert measured("adaptive_ece", *case) == pytest.approx(slow_adaptive_ece(*case), abs=1e-12)


# AURC


def all_orders(case: list[tuple[float, bool]]) -> np.ndarray:
    """Return the risks at k = 1 … n, averaged over all orders that have the more confident example first."""
    curves = []
    for order in itertools.permutations(case):
        if all(a[0] >= b[0] for a, b in itertools.pairwise(order)):
            wrong = np.cumsum([not right for _, right in order])
            curves.append(wrong / np.arange(1, len(order) + 1))
    return np.mean(curves, 0)


@given(st.lists(st.tuples(st.sampled_from([0.5, 0.6, 0.75, 0.9, 1.0]), st.booleans()), min_size=1, max_size=6))
@quick
def test_risks_are_the_mean_over_all_orders_of_equals(case: list[tuple[float, bool]]) -> None:
    confidence = torch.tensor([sure for sure, _ in case], dtype=torch.float64)
    probabilities = torch.stack([confidence, 1 - confidence], 1)
    labels, expected = torch.tensor([int(not right) for _, right in case]), all_orders(case)
    assert measured("aurc", probabilities, labels) == pytest.approx(expected.mean(), abs=1e-12)


# A GPU


@pytest.mark.gpu
def test_on_a_gpu_all_is_the_same() -> None:
    probabilities, labels = predictions(n=10_000, right=0.8)
    there = summary(probabilities.log().cuda(), labels.cuda())
    assert there == pytest.approx(summary(probabilities.log(), labels), abs=1e-6)
    assert reliability(probabilities.cuda(), labels.cuda()).count == reliability(probabilities, labels).count


Array = NDArray[np.float64]


def logits(apart: float, n: int = 3000, classes: int = 4, seed: int = 0) -> Tensor:
    """Return the logits of two networks, whose classes are so far apart that many of their probabilities are 1."""
    generator = torch.Generator().manual_seed(seed)
    sure = torch.rand(n, 2, 1, generator=generator) * apart
    return sure * torch.randint(3, (n, 2, classes), generator=generator)


def log_softmax(values: Array) -> Array:
    return values - logsumexp(values, axis=-1, keepdims=True)


def log_average(values: Array) -> Array:
    return logsumexp(log_softmax(values), axis=1) - np.log(values.shape[1])


@pytest.mark.parametrize(("apart", "dtype"), [(10, torch.float32), (40, torch.float32), (60, torch.float64)])
def test_metrics_of_sure_networks_are_those_of_float64(apart: float, dtype: torch.dtype) -> None:
    x = logits(apart).to(dtype)
    labels = torch.randint(4, (len(x),), generator=torch.Generator().manual_seed(2))
    networks = [Wrapped(lambda x, number=number: x[:, number]) for number in (0, 1)]
    found = ss.evaluate(networks, test=[(x, labels)], progress=False)
    exact, y = x.double().numpy(), labels.numpy()
    alone = next(row for row in found.rows if row.kind == "point")
    for row, each in ((found["vertices"], exact), (alone, exact[:, :1])):
        p, logs = softmax(each, -1).mean(1), log_average(each)
        assert row.accuracy == (p.argmax(1) == y).mean()
        assert row.nll == pytest.approx(-logs[np.arange(len(y)), y].mean(), rel=1e-12)
        assert row.brier == pytest.approx(((p - np.eye(4)[y]) ** 2).sum(1).mean(), rel=1e-12)


def test_the_mean_of_networks_that_mask_a_class_is_scipys() -> None:
    values = 60 * torch.randn(5, 50, 7, generator=torch.Generator().manual_seed(0))
    values[:, :, 0] = -torch.inf
    exact = log_average(values.double().numpy().transpose(1, 0, 2))
    np.testing.assert_allclose(log_mean(values), exact, rtol=1e-13, atol=1e-14)


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
