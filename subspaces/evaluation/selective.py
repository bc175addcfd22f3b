"""Confidence: whether it is deserved, and the error among the answers where the network answers only if it is sure.

Everything here is of `each`, float64 [n, 2]: of every example the confidence (the largest probability), and whether the
predicted class is the label. Examples of equal confidence have no order among themselves, so none of the numbers
depends on the order in which the examples come.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from subspaces.errors import ArgumentError
from subspaces.evaluation.rows import RiskCoverage

BINS = 20


def by_confidence(each: Tensor) -> tuple[Tensor, Tensor]:
    """Return both columns with the most confident example first; those of equal confidence share their mean.

    A confidence that is NaN ranks last.

    That mean is what a random order among equals gives on average.
    """
    rank, order = each[:, 0].nan_to_num(nan=-1.0).sort(descending=True)
    _, group, count = rank.unique_consecutive(return_inverse=True, return_counts=True)
    # Sums of zeros and ones are exact, so that the order of a parallel sum does not matter.
    total = torch.zeros_like(count, dtype=each.dtype).scatter_add(0, group, each[:, 1][order])
    return each[:, 0][order], (total / count)[group]


def adaptive_gap(each: Tensor, bins: int = BINS) -> Tensor:
    """Return sum_b |B_b|/n |acc(B_b) - conf(B_b)| over bins of equally many examples, in order of confidence.

    The sizes of the bins differ by one at most; with fewer examples than bins, each is a bin of its own. Examples
    of equal confidence share their mean accuracy, so that it does not matter which of them a border divides.
    """
    if bins < 1:
        raise ArgumentError(f"bins={bins}: expected at least 1")
    confidence, correct = by_confidence(each)
    n = len(confidence)
    borders = torch.arange(min(bins, n) + 1, device=confidence.device) * n // min(bins, n)
    total = F.pad((correct - confidence).cumsum(0), (1, 0))[borders]
    return total.diff().abs().sum() / n


def risks(each: Tensor) -> Tensor:
    """Return the error r_k among the k most confident examples, for k = 1 … n; AURC = 1/n sum_k r_k."""
    wrong = 1 - by_confidence(each)[1]
    return wrong.cumsum(0) / torch.arange(1, len(wrong) + 1, device=wrong.device)


def risk_coverage(each: Tensor, points: int = 51) -> RiskCoverage:
    """Return the risk–coverage curve at about `points` equally spaced coverages from 1/n to 1.

    Fewer examples than points give one coverage per example.
    """
    if points < 2:
        raise ArgumentError(f"points={points}: expected at least 2, the first and the last coverage")
    risk = risks(each)
    n, steps = len(risk), points - 1
    kept = sorted({max(1, (2 * n * step + steps) // (2 * steps)) for step in range(points)})  # rounded
    chosen = risk[torch.tensor(kept, device=risk.device) - 1]
    return RiskCoverage(coverage=[k / n for k in kept], risk=chosen.tolist())


def threshold(each: Tensor, risk: float) -> float | None:
    """Return the lowest confidence from which the answers have an error of at most `risk`; None if there is none.

    Choose it on one split and apply it to another.
    """
    if not 0 <= risk <= 1:
        raise ArgumentError(f"risk={risk}: expected an error between 0 and 1")
    confidence, correct = by_confidence(each)
    kept = torch.arange(1, len(correct) + 1, device=correct.device)
    last = torch.ones_like(kept, dtype=torch.bool)  # of its confidence: a threshold keeps equals together
    last[:-1] = confidence[1:] != confidence[:-1]
    wrong = (1 - correct).cumsum(0).round()  # a whole number at each of those, but for the rounding of means
    allowed = confidence[last & (wrong / kept <= risk) & ~confidence.isnan()]
    return float(allowed[-1]) if len(allowed) else None


def answered(each: Tensor, threshold: float) -> dict[str, float]:
    """Return the share of examples that are at least as confident as a threshold, and the error among them.

    Where there is none, both are 0: nothing was answered, nothing was wrong.
    """
    confidence, correct = each.unbind(1)
    kept = confidence >= threshold
    coverage, wrong = torch.stack([kept.double().mean(), (kept * (1 - correct)).mean()]).tolist()
    return {"coverage": coverage, "risk": wrong / coverage if coverage else 0.0}
