"""Metrics of predicted class probabilities [n, classes] against labels [n], and of two predictions against each other.

All of them are pure functions of tensors on any device; sums over examples are in float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from subspaces.ensembles import Average
from subspaces.evaluation.record import Reliability
from subspaces.evaluation.selective import aurc, by_confidence, check, risks, top
from subspaces.text import nearest


def log_mean(logits: Tensor, average: Average = "probabilities") -> Tensor:
    """Return the log-probabilities [n, classes] of an ensemble from the logits [k, n, classes] of its members.

    log 1/k sum_i softmax(z_i) for "probabilities", log softmax(1/k sum_i z_i) for "logits"; for one member both
    are its log_softmax.
    """
    if logits.ndim != 3 or not len(logits):
        raise ValueError(f"logits of shape {tuple(logits.shape)}: expected [members, n, classes]")
    if average == "logits":
        return logits.float().mean(0).log_softmax(-1)
    if average != "probabilities":
        raise ValueError(f"average={average!r}: expected 'probabilities' or 'logits'")
    return logits.float().log_softmax(-1).logsumexp(0) - math.log(len(logits))


def accuracy(probabilities: Tensor, labels: Tensor) -> float:
    """Return the share of examples whose most probable class is the label."""
    return float(_accuracy(probabilities, labels))


def nll(log_probabilities: Tensor, labels: Tensor) -> float:
    """Return the negative log-likelihood, -1/n sum_i log p_i[y_i], from log-probabilities.

    Logarithms of rounded probabilities would be infinite where a network is sure and wrong.
    """
    return float(_nll(log_probabilities, labels))


def brier(probabilities: Tensor, labels: Tensor) -> float:
    """Return the Brier score, 1/n sum_i sum_c (p_i[c] - [c = y_i])², between 0 and 2."""
    return float(_brier(probabilities, labels))


def expected_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 20) -> float:
    """Return ECE = sum_b |B_b|/n |acc(B_b) - conf(B_b)| over bins of equal width.

    Bin b holds the confidences from b/bins up to, not including, (b+1)/bins; 1.0 belongs to the last bin.
    """
    return float(_ece(*top(probabilities, labels), bins))


def adaptive_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 20) -> float:
    """Return sum_b |B_b|/n |acc(B_b) - conf(B_b)| over bins of equally many examples, in order of confidence.

    The sizes of the bins differ by one at most; with fewer examples than bins, each is a bin of its own. Examples
    of equal confidence share their mean accuracy, so that it does not matter which of them a border divides.
    """
    return float(_adaptive_ece(*by_confidence(*top(probabilities, labels)), bins))


def reliability(probabilities: Tensor, labels: Tensor, bins: int = 20) -> Reliability:
    """Return count, mean confidence and accuracy of the bins of the expected calibration error."""
    confidence, correct = top(probabilities, labels)
    borders = _borders(bins, confidence)
    index = (torch.bucketize(confidence, borders, right=True) - 1).clamp(max=bins - 1)
    members = index == torch.arange(bins, device=index.device)[:, None]  # [bins, n]
    sums = [torch.where(members, values, 0.0).sum(1) for values in (torch.ones_like(correct), confidence, correct)]
    counts, confidences, corrects = torch.stack(sums).tolist()
    return Reliability(
        count=[int(count) for count in counts],
        confidence=[total / count if count else None for total, count in zip(confidences, counts, strict=True)],
        accuracy=[total / count if count else None for total, count in zip(corrects, counts, strict=True)],
    )


def total_variation(p: Tensor, q: Tensor) -> float:
    """Return the mean over examples of the total variation distance ½ sum_c |p_i[c] - q_i[c]|."""
    _check_pair(p, q)
    return float((p - q).abs().sum(1, dtype=torch.float64).mean() / 2)


def disagreement(p: Tensor, q: Tensor) -> float:
    """Return the share of examples for which two networks predict different classes."""
    _check_pair(p, q)
    return float((p.argmax(1) != q.argmax(1)).double().mean())


def feature_cosine(a: Tensor, b: Tensor) -> float:
    """Return the mean over examples of the cosine of two networks' features [n, d]; 0 for features of zeros."""
    _check_pair(a, b)
    return float(F.cosine_similarity(a.float(), b.float(), dim=1).double().mean())


def summary(log_probabilities: Tensor, labels: Tensor) -> dict[str, float]:
    """Return all of METRICS by name, with the work they share done once."""
    probabilities = log_probabilities.exp()
    confidence, correct = top(probabilities, labels)
    ordered = by_confidence(confidence, correct)
    values = {
        "accuracy": _accuracy(probabilities, labels),
        "nll": _nll(log_probabilities, labels),
        "brier": _brier(probabilities, labels),
        "ece": _ece(confidence, correct, 20),
        "adaptive_ece": _adaptive_ece(*ordered, 20),
        "aurc": risks(ordered[1]).mean(),
    }
    return dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))  # one transfer for all


@dataclass(frozen=True)
class Metric:
    """One metric of a row, as figures and pages need it."""

    function: Callable[[Tensor, Tensor], float]  # of log-probabilities [n, classes] and labels [n]
    lower_is_better: bool


def _of_probabilities(function: Callable[[Tensor, Tensor], float]) -> Callable[[Tensor, Tensor], float]:
    return lambda log_probabilities, labels: function(log_probabilities.exp(), labels)


METRICS = {
    "accuracy": Metric(_of_probabilities(accuracy), False),
    "nll": Metric(nll, True),
    "brier": Metric(_of_probabilities(brier), True),
    "ece": Metric(_of_probabilities(expected_calibration_error), True),
    "adaptive_ece": Metric(_of_probabilities(adaptive_calibration_error), True),
    "aurc": Metric(_of_probabilities(aurc), True),
}


def metric(name: str) -> Metric:
    """Return the metric of that name, or say which one may have been meant."""
    if name not in METRICS:
        raise ValueError(f"unknown metric {name!r}: {nearest(str(name), METRICS)}")
    return METRICS[name]


def _accuracy(probabilities: Tensor, labels: Tensor) -> Tensor:
    from torchmetrics.functional.classification import multiclass_accuracy

    check(probabilities, labels)
    n, classes = probabilities.shape
    share = multiclass_accuracy(probabilities, labels, classes, average="micro", validate_args=False)
    return (share.double() * n).round() / n  # it divides in float32


def _nll(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    check(log_probabilities, labels)
    return 0 - log_probabilities.gather(1, labels[:, None]).double().mean()  # not -0.0 for certainty


def _brier(probabilities: Tensor, labels: Tensor) -> Tensor:
    check(probabilities, labels)
    index = labels[:, None]
    difference = probabilities.scatter_add(1, index, -torch.ones_like(index, dtype=probabilities.dtype))
    return difference.square_().sum(1, dtype=torch.float64).mean()


def _ece(confidence: Tensor, correct: Tensor, bins: int) -> Tensor:
    """Return the calibration error of float64 confidences.

    Not torchmetrics' multiclass form: it adds up in float32, which is off in the third digit for 50,000 confidences
    near 1. It also has a bin of its own for 1.0, and passes over predictions that are not numbers.
    """
    from torchmetrics.functional.classification import binary_calibration_error

    _borders(bins, confidence)
    below_one = confidence.clamp(max=1 - torch.finfo(confidence.dtype).eps)
    error = binary_calibration_error(below_one, correct.long(), n_bins=bins, norm="l1", validate_args=False)
    return torch.where(confidence.isnan().any(), torch.nan, error)


def _borders(bins: int, like: Tensor) -> Tensor:
    """Return the borders of bins of equal width, the same as in `binary_calibration_error`."""
    if bins < 1:
        raise ValueError(f"bins={bins}: expected at least 1")
    return torch.linspace(0, 1, bins + 1, dtype=like.dtype, device=like.device)


def _adaptive_ece(confidence: Tensor, correct: Tensor, bins: int) -> Tensor:
    """Return the calibration error over bins of equal mass, for examples in the order of `by_confidence`."""
    if bins < 1:
        raise ValueError(f"bins={bins}: expected at least 1")
    n = len(confidence)
    borders = torch.arange(min(bins, n) + 1, device=confidence.device) * n // min(bins, n)
    total = F.pad((correct - confidence).cumsum(0), (1, 0))[borders]
    return total.diff().abs().sum() / n


def _check_pair(a: Tensor, b: Tensor) -> None:
    if a.shape != b.shape or a.ndim != 2 or not len(a):
        raise ValueError(
            f"got shapes {tuple(a.shape)} and {tuple(b.shape)}: expected two of the same shape, [n, classes] or [n, d]"
        )
