"""Outliers: areas and rates against scikit-learn, and what is measured of families and runs."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from evaluation_cases import LOADERS, TEST, TRAINING, family
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy
from sklearn.metrics import roc_auc_score, roc_curve
from torch import nn

import subspaces as ss
from subspaces.evaluation.classification import Classes
from subspaces.evaluation.measuring import OUTLIER_METRICS, auroc, fpr95, scores

ELSEWHERE = [(x + 2, torch.full_like(y, 77)) for x, y in TEST[:2]]  # labels are not looked at
LINE: dict[str, Any] = {"grid": (0.0, 0.5, 1.0)}
SCORES = st.lists(st.integers(-3, 3) | st.floats(-2, 2, width=32), min_size=1, max_size=60)


def independent(inside: Any, outside: Any) -> tuple[float, float]:
    right = np.r_[np.ones(len(inside)), np.zeros(len(outside))]
    both = np.r_[inside, outside]
    false, true, _ = roc_curve(right, both, drop_intermediate=False)
    return float(roc_auc_score(right, both)), float(false[np.argmax(true >= 0.95)])


@settings(max_examples=60, deadline=None)
@given(SCORES, SCORES)
def test_areas_and_rates_are_those_of_scikit_learn(inside: list[float], outside: list[float]) -> None:
    found = [torch.tensor(each, dtype=torch.float64) for each in (inside, outside)]
    assert (auroc(*found), fpr95(*found)) == pytest.approx(independent(inside, outside))


def test_disagreement_is_of_different_networks_that_may_be_certain() -> None:
    alone = Classes(3 * torch.randn(7, 5))
    assert list(scores([alone])) == list(scores([alone, alone])) == ["probability", "entropy"]
    certain = torch.tensor([[[0.0, -torch.inf]], [[-torch.inf, 0.0]]])
    assert float(scores([Classes(each) for each in certain])["disagreement"]) == pytest.approx(-np.log(2))


def test_a_family_tells_outliers_as_a_plain_loop_does() -> None:
    line = family(ss.Line())
    found = ss.evaluate(line, **LOADERS, **LINE, outliers={"far": ELSEWHERE, "same": TEST})
    assert {row.data for row in found.rows if row.group == "outliers"} == {"far", "same"}
    said = {}
    for alpha in (0.0, 1.0):
        network = ss.recalibrate(line.at(alpha), TRAINING).eval()
        with torch.no_grad():
            said[alpha] = [torch.cat([network(x) for x, _ in each]).double().softmax(1) for each in (TEST, ELSEWHERE)]
    means = [(first + second) / 2 for first, second in zip(*said.values(), strict=True)]
    confidences = [each.max(1).values.numpy() for each in means]
    mixed = [entropy(each.numpy(), axis=1) for each in means]
    alone = [np.mean([entropy(said[a][side].numpy(), axis=1) for a in said], 0) for side in (0, 1)]
    apart = [some - other for some, other in zip(alone, mixed, strict=True)]
    row = found.row("pair", "far")
    assert (row.alphas, row.count) == ([0.0, 1.0], sum(len(y) for _, y in ELSEWHERE))
    for name, two in (("probability", confidences), ("entropy", [-each for each in mixed]), ("disagreement", apart)):
        assert (row.metrics[f"auroc_{name}"], row.metrics[f"fpr95_{name}"]) == pytest.approx(independent(*two))
    assert set(found.row("midpoint", "far").metrics) == {each.name for each in OUTLIER_METRICS[:4]}
    assert found.row("midpoint", "same").auroc_entropy == pytest.approx(0.5)
    assert "far" in found.table("outliers")
    with pytest.raises(KeyError, match="'fare' was not measured: did you mean 'far'"):
        found.row("pair", "fare")


def test_outliers_need_no_labels_and_plain_networks_are_measured() -> None:
    bare = [x for x, _ in ELSEWHERE]
    network = nn.Linear(12, 10)
    found = ss.evaluate(network, test=TEST, outliers=bare, progress=False)
    labelled = ss.evaluate(network, test=TEST, outliers=ELSEWHERE, progress=False)
    assert found == dataclasses.replace(labelled, environment=found.environment)
    assert found.rows[-1].data == "outliers"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (3, "outliers=3: expected something that yields batches"),
        ("mnist", "outliers='mnist': expected something that yields batches"),
        (iter(TEST), "walked over again"),
        ({"far": 3}, "expected something that yields batches"),
        ({"far": [], "near": TEST}, "the far loader has no examples"),
    ],
)
def test_what_cannot_be_measured_is_refused(value: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        ss.evaluate(family(ss.Line()), **LOADERS, **LINE, outliers=value)


def test_other_tasks_have_no_outliers() -> None:
    batches = [(torch.randn(8, 3), torch.randn(8, 1))]
    with pytest.raises(ValueError, match="the task is regression; expected a classification"):
        ss.evaluate(nn.Linear(3, 1), test=batches, task="regression", outliers=batches, progress=False)
