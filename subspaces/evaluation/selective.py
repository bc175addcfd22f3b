"""Confidence: whether it is deserved, and the error among the answers where the network answers only if it is sure.

`each` is float64 [n, 2]: of every example the confidence (the largest probability), and whether the predicted class is
the label. None of the numbers depends on the order of the examples.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from subspaces.evaluation.rows import RiskCoverage

BINS = 20
POINTS = 51


def by_confidence(each: Tensor) -> tuple[Tensor, Tensor]:
    """Return both columns with the most confident example first; a confidence that is NaN ranks last.

    Examples of equal confidence share their mean, which is what a random order among them gives on average.
    """
    rank, order = each[:, 0].nan_to_num(nan=-1.0).sort(descending=True)
    _, group, count = rank.unique_consecutive(return_inverse=True, return_counts=True)
    # Sums of zeros and ones are exact, so that the order of a parallel sum does not matter.
    total = torch.zeros_like(count, dtype=each.dtype).scatter_add(0, group, each[:, 1][order])
    return each[:, 0][order], (total / count)[group]


def adaptive_gap(each: Tensor) -> Tensor:
    """Return sum_b |B_b|/n |acc(B_b) - conf(B_b)| over bins of equally many examples, in order of confidence.

    The sizes of the bins differ by one at most; with fewer examples than bins, each is a bin of its own.
    """
    confidence, correct = by_confidence(each)
    n, bins = len(confidence), min(BINS, len(confidence))
    borders = torch.arange(bins + 1, device=confidence.device) * n // bins
    total = F.pad((correct - confidence).cumsum(0), (1, 0))[borders]
    return total.diff().abs().sum() / n


def risks(each: Tensor) -> Tensor:
    """Return the error r_k among the k most confident examples, for k = 1 … n; AURC = 1/n sum_k r_k."""
    wrong = 1 - by_confidence(each)[1]
    return wrong.cumsum(0) / torch.arange(1, len(wrong) + 1, device=wrong.device)


def risk_coverage(each: Tensor) -> RiskCoverage:
    """Return the error at about 51 equally spaced coverages from 1/n to 1; fewer examples give one each."""
    risk, steps = risks(each), POINTS - 1
    n = len(risk)
    kept = sorted({max(1, (2 * n * step + steps) // (2 * steps)) for step in range(POINTS)})  # rounded
    chosen = risk[torch.tensor(kept, device=risk.device) - 1]
    return RiskCoverage([k / n for k in kept], chosen.tolist())
