"""Selective prediction: answer where the network is sure, and the error among the answers.

Everything here depends on the predictions only through the confidence (the largest probability) and on
whether the predicted class is the label. Examples of equal confidence have no order among themselves, so
none of the numbers depends on the order in which the examples come.
"""

import torch
from torch import Tensor

from subspaces.evaluation.record import RiskCoverage


def top(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return of each example the largest probability and whether its class is the label: float64 [n], [n]."""
    check(probabilities, labels)
    confidence, predicted = probabilities.max(1)
    return confidence.double().clamp(max=1.0), (predicted == labels).double()


def check(predictions: Tensor, labels: Tensor) -> None:
    """Refuse tensors that are not predictions [n, classes] and labels [n] of at least one example."""
    if predictions.ndim != 2 or not predictions.numel() or not predictions.is_floating_point():
        raise ValueError(
            f"predictions of shape {tuple(predictions.shape)} and dtype {predictions.dtype}: "
            "expected floating-point numbers [n, classes] of at least one example"
        )
    if labels.shape != predictions.shape[:1] or labels.dtype != torch.int64:
        raise ValueError(
            f"labels of shape {tuple(labels.shape)} and dtype {labels.dtype}: "
            f"expected one int64 for each of the {len(predictions)} predictions"
        )


def by_confidence(confidence: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    """Return both with the most confident example first; examples of equal confidence share their mean of `correct`.

    That mean is what a random order among equals gives on average.
    """
    confidence, order = confidence.sort(descending=True)
    starts = torch.ones_like(order)
    starts[1:] = confidence[1:] != confidence[:-1]
    group = starts.cumsum(0) - 1  # [n]
    empty = torch.zeros_like(correct)
    # Sums of zeros and ones are exact, so that the order of a parallel sum does not matter.
    total = empty.scatter_add(0, group, correct[order])
    count = empty.scatter_add(0, group, torch.ones_like(correct))
    return confidence, (total / count)[group]


def risks(correct: Tensor) -> Tensor:
    """Return the error among the first k of examples in the order of `by_confidence`, for k = 1 … n."""
    kept = torch.arange(1, len(correct) + 1, device=correct.device)
    return (1 - correct).cumsum(0) / kept


def aurc(probabilities: Tensor, labels: Tensor) -> float:
    """Return the area under the risk–coverage curve: AURC = 1/n sum_k r_k.

    r_k is the error among the k most confident examples; where the k-th has equals, the mean over all orders of them.
    """
    return float(risks(by_confidence(*top(probabilities, labels))[1]).mean())


def risk_coverage(probabilities: Tensor, labels: Tensor, points: int = 51) -> RiskCoverage:
    """Return the risk–coverage curve at about `points` equally spaced coverages from 1/n to 1.

    Fewer examples than points give one coverage per example.
    """
    return to_risk_coverage(torch.stack(top(probabilities, labels), dim=1), points)


def to_risk_coverage(each: Tensor, points: int = 51) -> RiskCoverage:
    """Return the same of confidences and whether they are right, [n, 2]."""
    if points < 2:
        raise ValueError(f"points={points}: expected at least 2, the first and the last coverage")
    risk = risks(by_confidence(*each.T)[1])
    n, steps = len(risk), points - 1
    kept = sorted({max(1, (2 * n * step + steps) // (2 * steps)) for step in range(points)})  # rounded
    chosen = risk[torch.tensor(kept, device=risk.device) - 1]
    return RiskCoverage(coverage=[k / n for k in kept], risk=chosen.tolist())


def threshold_for_risk(probabilities: Tensor, labels: Tensor, risk: float) -> float | None:
    """Return the lowest threshold for which `selected` examples have an error of at most `risk`.

    It is one of the confidences that occur, and None if even the most confident examples have a larger error. Choose
    it on one split and apply it to another.
    """
    return threshold(*top(probabilities, labels), risk)


def threshold(confidence: Tensor, correct: Tensor, risk: float) -> float | None:
    """Return the same of confidences and whether they are right, float64 [n]."""
    if not 0 <= risk <= 1:
        raise ValueError(f"risk={risk}: expected an error between 0 and 1")
    confidence, correct = by_confidence(confidence, correct)
    kept = torch.arange(1, len(correct) + 1, device=correct.device)
    last = torch.ones_like(kept, dtype=torch.bool)  # of its confidence: a threshold keeps equals together
    last[:-1] = confidence[1:] != confidence[:-1]
    wrong = (1 - correct).cumsum(0).round()  # a whole number at each of those, but for the rounding of means
    allowed = confidence[last & (wrong / kept <= risk)]
    return float(allowed[-1]) if len(allowed) else None


def selected(probabilities: Tensor, labels: Tensor, threshold: float) -> dict[str, float]:
    """Return the share of examples that are at least as confident as the threshold, and the error among them.

    Where there is none, both are 0: nothing was answered, nothing was wrong.
    """
    return answered(*top(probabilities, labels), threshold)


def answered(confidence: Tensor, correct: Tensor, threshold: float) -> dict[str, float]:
    """Return the same of confidences and whether they are right, float64 [n]."""
    kept = confidence >= threshold
    coverage, wrong = torch.stack([kept.double().mean(), (kept * (1 - correct)).mean()]).tolist()
    return {"coverage": coverage, "risk": wrong / coverage if coverage else 0.0}
