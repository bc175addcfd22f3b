"""The tasks: tokens, pixels, one logit, numbers, tasks and metrics of the user's own, against other implementations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    jaccard_score,
    log_loss,
    mean_absolute_error,
    root_mean_squared_error,
)
from torch import Tensor, nn
from torchmetrics.functional.classification import multiclass_f1_score

import subspaces as ss
from subspaces.evaluation import METRICS, Metric, average
from subspaces.evaluation.classification import Classes
from subspaces.evaluation.metrics import of_task

QUIET: dict[str, Any] = {"progress": False}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def whole(high: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


# Classification of something else than examples


@pytest.mark.parametrize("shift", [False, True])
def test_tokens_have_the_perplexity_of_their_mean_likelihood(shift: bool) -> None:
    logits, labels = 2 * normal(7, 11, 6), whole(6, 7, 11)
    labels[torch.rand(7, 11, generator=torch.Generator().manual_seed(1)) < 0.3] = -100
    labels[4:6] = -100  # a batch in which nothing counts
    task = ss.Classification(of="tokens", shift=shift)
    found = ss.evaluate(
        nn.Identity(), test=list(zip(logits.split(2), labels.split(2), strict=True)), task=task, **QUIET
    )
    row = found["midpoint"]
    x, y = (logits[:, :-1], labels[:, 1:]) if shift else (logits, labels)
    counts = (y != -100).numpy()
    scores = x.double().numpy()[counts]
    log = scores - logsumexp(scores, 1, keepdims=True)
    nll = -log[np.arange(len(scores)), y.numpy()[counts]].mean()
    assert found.task == "tokens"
    assert row.count == counts.sum()
    assert row.nll == pytest.approx(nll, rel=1e-6)
    assert row.perplexity == pytest.approx(math.exp(nll), rel=1e-6)
    assert row.accuracy == accuracy_score(y.numpy()[counts], scores.argmax(1))
    assert list(row.metrics) == [each.name for each in of_task("tokens")]
    loss = nn.functional.cross_entropy(x.flatten(0, 1), y.flatten())  # which leaves out what torch does
    assert row.perplexity == pytest.approx(float(loss.exp()), rel=1e-5)


def test_pixels_have_the_mean_iou_of_scikit_learn() -> None:
    logits, labels = normal(9, 5, 6, 4, seed=2), whole(4, 9, 6, 4, seed=3)  # class 4 is answered and never right
    logits[:, 3] -= 100  # class 3 is right and never answered
    labels[:, :2] = -100
    batches = list(zip(logits.split(4), labels.split(4), strict=True))
    row = ss.evaluate(nn.Identity(), test=batches, task=ss.Classification(of="pixels"), **QUIET)["midpoint"]
    answers, kept = logits.argmax(1), labels != -100
    assert row.miou == pytest.approx(jaccard_score(labels[kept], answers[kept], average="macro"))
    assert row.accuracy == pytest.approx(accuracy_score(labels[kept], answers[kept]))
    assert row.nll == pytest.approx(float(nn.functional.cross_entropy(logits, labels)), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])  # which binary_cross_entropy_with_logits takes
@pytest.mark.parametrize("column", [False, True])
def test_one_logit_is_that_of_the_second_of_two_classes(column: bool, dtype: torch.dtype) -> None:
    logit, labels = 3 * normal(50), whole(2, 50)
    inputs = logit[:, None] if column else logit
    goal = (labels[:, None] if column else labels).to(dtype)
    row = ss.evaluate(nn.Identity(), test=[(inputs[:30], goal[:30]), (inputs[30:], goal[30:])], **QUIET)["midpoint"]
    p = logit.double().sigmoid().numpy()
    assert row.nll == pytest.approx(log_loss(labels, p), rel=1e-5)
    assert row.nll == pytest.approx(
        float(nn.functional.binary_cross_entropy_with_logits(logit, labels.float())), rel=1e-5
    )
    assert row.accuracy == accuracy_score(labels, p > 0.5)


# Regression


class Gaussian(nn.Module):
    """A mean and a variance of two numbers."""

    def __init__(self, log: bool = False) -> None:
        super().__init__()
        self.body, self.log = nn.Linear(4, 4), log

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = self.body(x).chunk(2, 1)
        return mean, raw if self.log else raw.exp()


X, Y = normal(120, 4, seed=5), normal(120, 2, seed=6)
NUMBERS = list(zip(X.split(50), Y.split(50), strict=True))


@pytest.mark.parametrize("log", [False, True])
def test_regression_is_that_of_torchs_and_scipys_distributions(log: bool) -> None:
    torch.manual_seed(0)
    family = ss.Subspace(lambda: Gaussian(log), ss.Line())
    found = ss.evaluate(family, test=NUMBERS, task=ss.Regression(log_variance=log), grid=(0.2,), **QUIET)
    for row in found.rows:
        with torch.no_grad():
            members = [family.at(alpha)(X) for alpha in row.alphas]
        means, variances = (torch.stack(parts).double() for parts in zip(*members, strict=True))
        variances = variances.exp() if log else variances
        mean = means.mean(0)
        variance = (variances + means**2).mean(0) - mean**2
        density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(Y.double())
        assert row.gaussian_nll == pytest.approx(-float(density.mean()), abs=1e-6)
        assert row.rmse == pytest.approx(math.sqrt(((Y - mean.float()) ** 2).mean()), abs=1e-6)
        assert row.rmse == pytest.approx(root_mean_squared_error(Y.flatten(), mean.flatten()), abs=1e-6)
        assert row.mae == pytest.approx(mean_absolute_error(Y.flatten(), mean.flatten()), abs=1e-6)
        low, high = stats.norm.interval(0.9, mean.numpy(), variance.sqrt().numpy())
        assert row.interval_coverage == pytest.approx(((Y.numpy() >= low) & (Y.numpy() <= high)).mean())
        assert (row.reliability, row.scaled) == (None, None)
        assert row.average == (None if row.kind == "point" else "mixture")
        if row.kind == "ensemble":
            gap = float(((means[0] - means[1]) ** 2).mean().sqrt())
            assert row.diversity == {"difference": pytest.approx(gap, abs=1e-7)}
    assert found.metric("interval_coverage").goal == 0.9
    points = [row for row in found.rows if row.kind == "point"]
    nearest = min(points, key=lambda row: abs(row.interval_coverage - 0.9))
    assert found.best(by="interval_coverage", on="test") == nearest.alphas[0]


def test_plain_numbers_have_no_density_and_any_shape() -> None:
    net = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    goal = Y[:, 0]
    row = ss.evaluate(net, test=[(X, goal)], task="regression", **QUIET)["midpoint"]
    assert list(row.metrics) == ["rmse", "mae"]
    with torch.no_grad():
        assert row.rmse == pytest.approx(root_mean_squared_error(goal, net(X)), rel=1e-6)
    with pytest.raises(ValueError, match=r"numbers of shape \(120,\) for targets of shape \(120, 2\)"):
        ss.evaluate(net, test=[(X, Y)], task=ss.Regression(), **QUIET)


# Tasks and metrics of the user's own


def exact(prediction: Tensor, target: Tensor) -> Tensor:
    return (prediction > 0).eq(target).all(1)


@dataclass(frozen=True)
class Several(ss.Task):
    """Several labels for each example, each of them there or not."""

    name: ClassVar[str] = "several"
    averages: ClassVar[tuple[str, ...]] = ("votes",)

    @property
    def metrics(self) -> list[Metric]:
        return [
            Metric(
                "exact", "all right", "share of examples with all labels right", lower_is_better=False, **average(exact)
            )
        ]

    def parts(self, output: Any, target: Any) -> tuple[Tensor, Tensor]:
        return output, target

    def combine(self, members: Sequence[Tensor], average: str) -> Tensor:
        return torch.stack(list(members)).mean(0)


def test_a_task_of_the_users_own() -> None:
    torch.manual_seed(3)
    family = ss.Subspace(lambda: nn.Linear(4, 2), ss.Line())
    goal = Y > 0
    batches = list(zip(X.split(50), goal.split(50), strict=True))
    more = [Metric("hamming", "Hamming", "wrong labels", **average(lambda p, y: ((p > 0) != y).double().mean(1)))]
    found = ss.evaluate(family, test=batches, validation=batches, task=Several(), metrics=more, grid=(0.1,), **QUIET)
    assert found.task == "several"
    for row in found.rows:
        with torch.no_grad():
            out = torch.stack([family.at(alpha)(X) for alpha in row.alphas]).mean(0)
        assert row.exact == pytest.approx(float(np.all((out.numpy() > 0) == goal.numpy(), axis=1).mean()))
        assert row.hamming == pytest.approx(float(np.mean((out.numpy() > 0) != goal.numpy())))
        assert row.average == (None if row.kind == "point" else "votes")
    assert [(choice.what, choice.by) for choice in found.choices] == [("point", "exact"), ("point", "hamming")]
    with pytest.raises(ValueError, match="has no metrics; give it some, or pass metrics="):
        ss.evaluate(family, test=batches, task=ss.Task(), **QUIET)


LOGITS, LABELS = 2 * normal(200, 10, seed=8), whole(10, 200, seed=9)
EXAMPLES = list(zip(LOGITS.split(64), LABELS.split(64), strict=True))


def test_a_metric_may_be_a_function_of_all_examples() -> None:
    f1 = Metric(
        "f1",
        "F1",
        "of precision and recall",
        lower_is_better=False,
        gathers=True,
        step=lambda p, y: torch.column_stack([p.probabilities, y]),
        value=lambda each: multiclass_f1_score(each[:, :-1], each[:, -1].long(), 10),
    )
    row = ss.evaluate(nn.Identity(), test=EXAMPLES, metrics=[f1], **QUIET)["midpoint"]
    assert row.f1 == pytest.approx(f1_score(LABELS, LOGITS.argmax(1), average="macro"), abs=1e-6)


def test_what_is_no_metric_or_has_a_name_that_is_taken_is_refused() -> None:
    for wrong, said in (
        (["f1"], r"metrics=\['f1'\]: expected instances of subspaces.Metric"),
        ([METRICS["accuracy"]], "another metric is called 'accuracy' already"),
    ):
        with pytest.raises(ValueError, match=said):
            ss.evaluate(nn.Identity(), test=EXAMPLES, metrics=wrong, **QUIET)


def test_a_metric_that_is_added_is_in_every_row_and_gone_when_it_is_removed() -> None:
    def among(p: Classes, y: Tensor) -> Tensor:
        return (p.probabilities.topk(3).indices == y[:, None]).any(1)

    made = Metric("top3", "top-3", "the right class among three", lower_is_better=False, percent=True, **average(among))
    METRICS.add(made)
    try:
        found = ss.evaluate(nn.Identity(), test=EXAMPLES, **QUIET)
        with pytest.raises(ValueError, match="another metric is called 'top3' already"):
            METRICS.add(Metric("top3", "another", "another"))
    finally:
        METRICS.remove("top3")
    ranks = (LOGITS.gather(1, LABELS[:, None]) < LOGITS).sum(1)
    assert found["midpoint"].top3 == pytest.approx(float((ranks < 3).double().mean()))
    assert found.metrics[-1] == made.described
    assert "top3" not in ss.evaluate(nn.Identity(), test=EXAMPLES, **QUIET)["midpoint"].metrics
    beside = ss.evaluate(nn.Identity(), test=EXAMPLES, metrics=[made], **QUIET)
    assert beside["midpoint"].metrics == found["midpoint"].metrics
