"""Classification: class probabilities [n, classes] against labels [n], and two predictions against each other.

Log-probabilities are float64: in float32, confidences above 1 - 1e-7 are equal, and so are the classes of ensembles.

A prediction that is NaN names no class. It counts as wrong in accuracy, mIoU and AURC (which ranks it last); two
networks that both predict NaN do not disagree. All metrics of probabilities (NLL, Brier score, ECE, perplexity,
total variation) are NaN if any of their predictions is.
"""

import math
from functools import cached_property, reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from subspaces.core.ensemble import Average
from subspaces.errors import ArgumentError
from subspaces.evaluation.metrics import METRICS, Metric, average
from subspaces.evaluation.rows import Reliability

BINS = 20
FAINT = 1e-290  # a probability that is less may have lost digits


class Classes:
    """The predicted class probabilities of n examples.

    Args:
        logs: log-probabilities [n, classes], which are finite also where a network is sure and wrong. Of one member of
            an ensemble, its logits.
    """

    def __init__(self, logs: Tensor) -> None:
        self.logs = logs

    @cached_property
    def probabilities(self) -> Tensor:
        return self.logs.exp()

    @cached_property
    def top(self) -> tuple[Tensor, Tensor]:
        """The largest probability of each example, and its class, which is -1 where the prediction is NaN."""
        largest, predicted = self.logs.max(1)
        return largest.exp(), predicted.where(~largest.isnan(), -1)

    @property
    def broken(self) -> Tensor:
        return (self.top[1] < 0).sum()

    def scaled(self, temperature: float) -> "Classes":
        """Return softmax(log p / T)."""
        return Classes((self.logs.double() / temperature).log_softmax(1))  # else the order of classes may change

    def __len__(self) -> int:
        return len(self.logs)


def log_mean(logits: Tensor, average: Average = "probabilities") -> Tensor:
    """Return the log-probabilities [n, classes] of an ensemble from the logits [k, n, classes] of its members.

    log 1/k sum_i softmax(z_i) for "probabilities", log softmax(1/k sum_i z_i) for "logits"; for one member both
    are its log_softmax. In float64, one member after the other, so that there is one copy in float64 at a time. The sum
    is one of probabilities, because sums of logarithms would tell classes apart that are equal, by their rounding.
    """
    if average == "logits":
        return logits.mean(0, dtype=torch.float64).log_softmax(-1)
    if len(logits) == 1:
        return logits[0].double().log_softmax(-1)
    mean: Tensor = reduce(Tensor.add_, (each.double().softmax(-1) for each in logits)).div_(len(logits))
    faint, logs = mean < FAINT, mean.log()
    if not bool(faint.any()):
        return logs
    exact: Tensor = reduce(torch.logaddexp, (each.double().log_softmax(-1) for each in logits)) - math.log(len(logits))
    return torch.where(faint, exact, logs)


# Steps and values. `prediction` is a `Classes`, `labels` are int64 [n].


def each_top(prediction: Classes, labels: Tensor) -> Tensor:
    """Return of each example the largest probability and whether its class is the label, float64 [n, 2]."""
    confidence, predicted = prediction.top
    if labels.shape != predicted.shape:  # which would be broadcast
        raise ArgumentError(
            f"labels of shape {tuple(labels.shape)}: expected one for each of {len(prediction)} predictions"
        )
    return torch.stack([confidence.double().clamp(max=1.0), (predicted == labels).double()], dim=1)


def in_bins(prediction: Classes, labels: Tensor) -> Tensor:
    """Return for bins of equal width how many confidences they hold, and the sums of confidence and of right answers.

    Bin b of n holds the confidences from b/n up to, not including, (b+1)/n; 1.0 belongs to the last bin. One more bin
    is for those that are NaN.
    """
    confidence, correct = each_top(prediction, labels).T.contiguous()
    borders = torch.linspace(0, 1, BINS + 1, dtype=confidence.dtype, device=confidence.device)
    index = (torch.bucketize(confidence, borders, right=True) - 1).clamp(max=BINS - 1).where(~confidence.isnan(), BINS)
    members = index == torch.arange(BINS + 1, device=index.device)[:, None]  # [BINS + 1, n]
    columns = (torch.ones_like(correct), confidence, correct)
    return torch.stack([torch.where(members, column, 0.0).sum(1) for column in columns])  # [3, BINS + 1]


def _gap(sums: Tensor) -> Tensor:
    count, confidence, correct = sums.unbind()
    return (correct - confidence).abs().sum() / count.sum()


def to_reliability(sums: Tensor) -> Reliability:
    """Return the bins of `in_bins` as they stand in a file, without that of NaN; an empty one has None."""
    counts, *totals = sums[:, :-1].tolist()
    means = [[total / n if n else None for total, n in zip(each, counts, strict=True)] for each in totals]
    return Reliability([int(count) for count in counts], *means)


def _minus_log(prediction: Classes, labels: Tensor) -> Tensor:
    return 0 - prediction.logs.gather(1, labels[:, None]).squeeze(1).double()  # not -0.0 for certainty


def _squares(prediction: Classes, labels: Tensor) -> Tensor:
    probabilities, index = prediction.probabilities, labels[:, None]
    difference = probabilities.scatter_add(1, index, -torch.ones_like(index, dtype=probabilities.dtype))
    return difference.square_().sum(1, dtype=torch.float64)


def _confusion(prediction: Classes, labels: Tensor) -> Tensor:
    """Return how often each class is answered for each, [label, answer]; the last column is of predictions of NaN."""
    classes, predicted = prediction.logs.shape[1], prediction.top[1]
    pairs = labels * (classes + 1) + predicted.where(predicted >= 0, classes)
    return torch.bincount(pairs, minlength=classes * (classes + 1)).reshape(classes, classes + 1).double()


def _intersection_over_union(confusion: Tensor) -> Tensor:
    """Return the mean over classes that occur of |A and B| / |A or B|."""
    right = confusion.diagonal()
    union = confusion[:, :-1].sum(0) + confusion.sum(1) - right
    found: Tensor = (right / union)[union > 0].mean()
    return found


# Confidences in order. `each` is float64 [n, 2]: the confidence, and whether the class is right. No order matters.


def by_confidence(each: Tensor) -> tuple[Tensor, Tensor]:
    """Return both columns with the most confident example first; a confidence that is NaN ranks last.

    Examples of equal confidence share their mean, which is what a random order among them gives on average.
    """
    rank, order = each[:, 0].nan_to_num(nan=-1.0).sort(descending=True)
    _, group, count = rank.unique_consecutive(return_inverse=True, return_counts=True)
    # Sums of zeros and ones are exact, so that the order of a parallel sum does not matter.
    total = torch.zeros_like(count, dtype=each.dtype).scatter_add(0, group, each[:, 1][order])
    return each[:, 0][order], (total / count)[group]


def _adaptive_gap(each: Tensor) -> Tensor:
    """Return sum_b |B_b|/n |acc(B_b) - conf(B_b)| over bins of equally many examples, in order of confidence.

    The sizes of the bins differ by one at most; with fewer examples than bins, each is a bin of its own.
    """
    confidence, correct = by_confidence(each)
    n, bins = len(confidence), min(BINS, len(confidence))
    borders = torch.arange(bins + 1, device=confidence.device) * n // bins
    total = F.pad((correct - confidence).cumsum(0), (1, 0))[borders]
    return total.diff().abs().sum() / n


def _area(each: Tensor) -> Tensor:
    """Return AURC = 1/n sum_k r_k of the errors r_k among the k most confident examples, for k = 1 … n."""
    wrong = 1 - by_confidence(each)[1]
    return (wrong.cumsum(0) / torch.arange(1, len(wrong) + 1, device=wrong.device)).mean()


# Metrics

WORDS = {
    "accuracy": ("accuracy", "share of examples whose most probable class is right"),
    "nll": ("NLL", "mean negative log-likelihood of the right class"),
    "brier": ("Brier score", "mean squared distance of the probabilities from the right answer"),
    "ece": ("ECE", "expected calibration error: how far confidence is from accuracy, over 20 bins of equal width"),
    "adaptive_ece": ("adaptive ECE", "the same over 20 bins that hold equally many examples"),
    "aurc": ("AURC", "error among the most confident examples, averaged over how many of them are answered"),
    "perplexity": ("perplexity", "among how many equally probable tokens the network seems to choose"),
    "miou": ("mIoU", "intersection over union of answered and right pixels, mean over the classes"),
    "tv": ("total variation", "share of probability by which two networks differ, on average over examples"),
    "disagreement": ("disagreement", "share of examples for which two networks answer different classes"),
}
"""What each metric is called, and what it means."""
EVERY = ("classification", "tokens", "pixels")
BINNED: dict[str, Any] = {"step": in_bins, "percent": True, "tasks": EVERY, "headline": True}
RANKED: dict[str, Any] = {"step": each_top, "gathers": True, "percent": True}
OVERLAP: dict[str, Any] = {"step": _confusion, "value": _intersection_over_union, "percent": True, "headline": True}


def _metric(name: str, **how: Any) -> Metric:
    return Metric(name, *WORDS[name], **how)


for _each in (
    _metric("accuracy", value=lambda sums: sums[2].sum() / sums[0].sum(), lower_is_better=False, **BINNED),
    _metric("nll", tasks=EVERY, headline=True, **average(_minus_log)),
    _metric("brier", headline=True, **average(_squares)),
    _metric("ece", value=_gap, **BINNED),
    _metric("adaptive_ece", value=_adaptive_gap, **RANKED),
    _metric("aurc", value=_area, **RANKED),
    _metric("perplexity", tasks=("tokens",), headline=True, **average(_minus_log, torch.exp)),
    _metric("miou", tasks=("pixels",), lower_is_better=False, **OVERLAP),
):
    METRICS.add(_each)


def _variation(p: Classes, q: Classes) -> Tensor:
    return (p.probabilities - q.probabilities).abs().sum(1, dtype=torch.float64) / 2


DISTANCES = (
    _metric("tv", **average(_variation)),
    _metric("disagreement", percent=True, **average(lambda p, q: p.top[1] != q.top[1])),
)
"""How differently two networks answer: metrics of one prediction and another."""


def temperature(logs: Tensor, labels: Tensor) -> float:
    """Return the T > 0 for which softmax(logs / T) has the best likelihood (Guo et al., 2017).

    The loss is convex in 1/T, so Newton's method, kept within a factor of two a step, finds the only minimum.
    Predictions that are NaN are left out; 1 if no other is there.
    """
    known = ~logs.isnan().any(1)
    if not bool(known.any()):
        return 1.0
    scores, right = logs[known].double(), labels[known][:, None]
    inverse = scores.new_ones(())
    for _ in range(60):
        p = (scores * inverse).softmax(1)
        mean = _weighted(p, scores)
        slope = (mean - scores.gather(1, right).squeeze(1)).mean()
        curve = (_weighted(p, scores.square()) - mean.square()).mean()
        step = (inverse - slope / curve.clamp(min=1e-12)).clamp(inverse / 2, inverse * 2).clamp(1e-2, 1e2)
        if float((step - inverse).abs()) < 1e-10 * float(inverse):
            break
        inverse = step
    return float(1 / inverse)


def _weighted(p: Tensor, scores: Tensor) -> Tensor:
    """Return the mean of scores under p, [n]; a probability of 0 counts nothing, also where its score is -inf."""
    return torch.where(p > 0, p * scores, 0.0).sum(1)
