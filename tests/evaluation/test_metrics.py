"""Metrics against independent implementations."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from evaluation_cases import certainly
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import distance
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from torch import Tensor
from torchmetrics.functional.classification import multiclass_accuracy

from subspaces.evaluation.classification import (
    BINS,
    DISTANCES,
    Classes,
    in_bins,
    log_mean,
    to_reliability,
)
from subspaces.evaluation.metrics import METRICS, of_task, tally
from subspaces.evaluation.rows import Reliability


def nll(log_probabilities: Tensor, labels: Tensor) -> float:
    return METRICS["nll"](Classes(log_probabilities), labels)


def measured(name: str, probabilities: Tensor, labels: Tensor) -> float:
    return METRICS[name](certainly(probabilities), labels)


def reliability(probabilities: Tensor, labels: Tensor) -> Reliability:
    return to_reliability(in_bins(certainly(probabilities), labels))


def summary(log_probabilities: Tensor, labels: Tensor) -> dict[str, float]:
    return tally(of_task("classification"), [(Classes(log_probabilities), labels)])


def apart(name: str, p: Tensor, q: Tensor) -> float:
    (metric,) = (each for each in DISTANCES if each.name == name)
    return metric(certainly(p), certainly(q))


def predictions(
    n: int = 500, classes: int = 7, sharpness: float = 2.0, right: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return probabilities and labels; a share `right` of the labels is the predicted class."""
    generator = torch.Generator().manual_seed(3)
    logits = sharpness * torch.randn(n, classes, generator=generator)
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


def slow_ece(probabilities: Tensor, labels: Tensor, bins: int = BINS) -> float:
    confidence, prediction = (t.numpy() for t in probabilities.double().max(-1))
    correct = prediction == labels.numpy()
    index = np.minimum((confidence * bins).astype(int), bins - 1)
    total = 0.0
    for b in range(bins):
        members = index == b
        if members.any():
            total += members.mean() * abs(correct[members].mean() - confidence[members].mean())
    return total


def slow_adaptive_ece(probabilities: Tensor, labels: Tensor) -> float:
    confidence, prediction = probabilities.double().max(-1)
    pairs = list(zip(confidence.tolist(), (prediction == labels).tolist(), strict=True))
    shared = {
        value: [right for other, right in pairs if other == value] for value in {confidence for confidence, _ in pairs}
    }
    queue = sorted(((value, sum(shared[value]) / len(shared[value])) for value, _ in pairs), reverse=True)
    bins = min(BINS, len(pairs))
    total = 0.0
    for b in range(bins):
        members = queue[b * len(pairs) // bins : (b + 1) * len(pairs) // bins]
        gap = np.mean([right for _, right in members]) - np.mean([value for value, _ in members])
        total += len(members) / len(pairs) * abs(gap)
    return total


@pytest.mark.parametrize("right", [0.0, 0.9])
def test_accuracy_is_scikit_learns_and_torchmetrics(right: float) -> None:
    probabilities, labels = predictions(right=right)
    assert measured("accuracy", probabilities, labels) == accuracy_score(labels, probabilities.argmax(-1))
    expected = multiclass_accuracy(probabilities, labels, 7, average="micro")
    assert measured("accuracy", probabilities, labels) == pytest.approx(float(expected), abs=1e-7)


@pytest.mark.parametrize("sharpness", [0.1, 2.0, 8.0])
def test_nll_and_brier_are_scikit_learns(sharpness: float) -> None:
    probabilities, labels = predictions(sharpness=sharpness)
    double = probabilities.double() / probabilities.double().sum(1, keepdim=True)
    classes = list(range(7))
    assert nll(probabilities.log(), labels) == pytest.approx(log_loss(labels, double, labels=classes), rel=1e-5)
    expected = brier_score_loss(labels, double, labels=classes, scale_by_half=False)
    assert measured("brier", probabilities, labels) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("sharpness", [0.1, 2.0, 30.0])
def test_ece_is_that_of_a_loop_in_float64(sharpness: float) -> None:
    probabilities, labels = predictions(sharpness=sharpness)
    assert measured("ece", probabilities, labels) == pytest.approx(slow_ece(probabilities, labels), abs=1e-12)


@pytest.mark.parametrize("calibration_error", ["ece", "adaptive_ece"])
def test_calibration_errors_of_many_equal_confidences_are_precise(calibration_error: str) -> None:
    probabilities = torch.tensor([[0.9985, 0.0015]]).expand(50_000, 2)
    labels = (torch.arange(50_000) % 100 == 0).long()
    gap = float(probabilities[0, 0].double()) - 0.99
    assert measured(calibration_error, probabilities, labels) == pytest.approx(gap, rel=1e-9)


def test_a_confidence_on_a_border_belongs_to_the_bin_above() -> None:
    probabilities = torch.tensor([[0.5, 0.5], [0.75, 0.25], [0.7499, 0.2501]])
    labels = torch.tensor([0, 1, 0])
    binned = reliability(probabilities, labels)
    assert {b: count for b, count in enumerate(binned.count) if count} == {10: 1, 14: 1, 15: 1}
    assert binned.accuracy[10] == 1.0
    assert binned.confidence[15] == 0.75
    assert binned.accuracy[0] is None
    assert binned.confidence[0] is None


@given(small())
@settings(max_examples=60, deadline=None)
def test_the_gaps_of_the_reliability_are_the_ece(case: tuple[Tensor, Tensor]) -> None:
    binned = reliability(*case)
    n = len(case[1])
    assert sum(binned.count) == n
    gaps = [
        count * abs(right - confidence) / n
        for count, right, confidence in zip(binned.count, binned.accuracy, binned.confidence, strict=True)
        if right is not None and confidence is not None
    ]
    assert len(gaps) == sum(count > 0 for count in binned.count)
    assert sum(gaps) == pytest.approx(measured("ece", *case), abs=1e-14)
    for b, confidence in enumerate(binned.confidence):
        assert confidence is None or b / BINS - 1e-12 <= confidence <= (b + 1) / BINS + 1e-12


@given(small())
@settings(max_examples=60, deadline=None)
def test_adaptive_ece_is_that_of_a_loop(case: tuple[Tensor, Tensor]) -> None:
    assert measured("adaptive_ece", *case) == pytest.approx(slow_adaptive_ece(*case), abs=1e-12)


@given(small(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_examples_does_not_matter_and_ranges_hold(case: tuple[Tensor, Tensor], random) -> None:
    probabilities, labels = case
    found = summary(probabilities.log(), labels)
    order = torch.tensor(random.sample(range(len(labels)), len(labels)))
    assert summary(probabilities.log()[order], labels[order]) == pytest.approx(found, abs=1e-12)
    for name in ("accuracy", "ece", "adaptive_ece", "aurc"):
        assert -1e-12 <= found[name] <= 1 + 1e-12
    assert 0 <= found["brier"] <= 2 + 1e-6
    assert found["nll"] >= 0
    # By the triangle inequality no binning can hide the gap of the means.
    gap = abs(found["accuracy"] - float(probabilities.log().exp().max(1).values.double().mean()))
    assert found["ece"] >= gap - 1e-12
    assert found["adaptive_ece"] >= gap - 1e-12


@given(small())
@settings(max_examples=40, deadline=None)
def test_the_summary_is_the_metrics_one_by_one(case: tuple[Tensor, Tensor]) -> None:
    probabilities, labels = case
    log_probabilities = probabilities.log()
    found = summary(log_probabilities, labels)
    assert list(found) == [each.name for each in of_task("classification")]
    exact = log_probabilities.exp()
    for name in ("accuracy", "brier", "ece", "adaptive_ece", "aurc"):
        assert found[name] == measured(name, exact, labels)
    assert found == {name: METRICS[name](Classes(log_probabilities), labels) for name in found}


@pytest.mark.parametrize("classes", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 50])
def test_a_perfect_predictor(n: int, classes: int) -> None:
    labels = torch.arange(n) % classes
    log_probabilities = torch.eye(classes)[labels].log()
    expected = {"accuracy": 1.0, "nll": 0.0, "brier": 0.0, "ece": 0.0, "adaptive_ece": 0.0, "aurc": 0.0}
    assert summary(log_probabilities, labels) == pytest.approx(expected, abs=1e-12)


def test_distances_are_scipys() -> None:
    p, _ = predictions(n=60)
    q = p.roll(1, 0)
    pairs = list(zip(p.double().numpy(), q.double().numpy(), strict=True))
    expected = np.mean([distance.cityblock(a, b) / 2 for a, b in pairs])
    assert apart("tv", p, q) == pytest.approx(expected, abs=1e-7)
    assert apart("disagreement", p, q) == np.mean([a.argmax() != b.argmax() for a, b in pairs])


def test_distances_at_their_ends() -> None:
    p = torch.eye(3)
    assert (apart("tv", p, p), apart("disagreement", p, p)) == (0.0, 0.0)
    assert (apart("tv", p, p.roll(1, 0)), apart("disagreement", p, p.roll(1, 0))) == (1.0, 1.0)


LABELS = torch.tensor([0, 1])
HALVES = torch.full((2, 2), 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: summary(HALVES[:0], LABELS[:0]), r"each of 0 predictions, at least one"),
        (lambda: nll(HALVES, LABELS[:1]), r"labels of shape \(1,\).*each of 2 predictions"),
        (lambda: nll(HALVES, LABELS.int()), r"labels .*int32: expected one int64"),
        (lambda: apart("tv", HALVES, HALVES[:1]), r"\(2, 2\) and \(1, 2\): expected two of the same shape"),
        (lambda: log_mean(HALVES), r"logits of shape \(2, 2\): expected \[members, n, classes\]"),
        (lambda: log_mean(HALVES[None], "votes"), "average='votes': expected 'probabilities' or 'logits'"),
    ],
)
def test_what_does_not_fit_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
def test_on_a_gpu_all_is_the_same() -> None:
    probabilities, labels = predictions(n=10_000, right=0.8)
    log_probabilities = probabilities.log()
    there = summary(log_probabilities.cuda(), labels.cuda())
    assert there == pytest.approx(summary(log_probabilities, labels), abs=1e-6)
    assert reliability(probabilities.cuda(), labels.cuda()).count == reliability(probabilities, labels).count
