"""Out-of-distribution detection: scores of examples, and how well they separate outliers from test examples.

A score is higher for examples like those of the test set. AUROC is the probability that a test example has a higher
score than an outlier, and FPR95 the share of outliers that are taken for test examples by the highest threshold
that keeps 95 % of these.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from subspaces.errors import ArgumentError
from subspaces.evaluation.classification import Classes, log_mean
from subspaces.evaluation.metrics import Metric


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Return P(a > b) + ½ P(a = b) for a score a of the test examples and b of the outliers."""
    inner, outer = _sorted(inside, outside)
    below, not_above = (torch.searchsorted(outer, inner, right=right) for right in (False, True))
    pairs = (below + not_above).sum(dtype=torch.float64) / 2
    return float(pairs / (len(inner) * len(outer)))


def fpr95(inside: Tensor, outside: Tensor) -> float:
    """Return the share of outliers with at least the score that 95 % of the test examples have at least."""
    inner, outer = _sorted(inside, outside)
    lost = 5 * len(inner) // 100  # of the lowest scores
    return float((outer >= inner[lost]).double().mean())


def _sorted(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    for name, scores in (("inside", inside), ("outside", outside)):
        if scores.ndim != 1 or not len(scores) or bool(scores.isnan().any()):
            raise ArgumentError(f"{name} of shape {tuple(scores.shape)}: expected at least one score, none of them NaN")
    return inside.double().sort().values, outside.double().sort().values


DISAGREEMENT = "how little the members disagree (minus the mutual information of answer and member)"
SCORES = {
    "probability": ("max. probability", "the largest probability"),
    "entropy": ("entropy", "minus the entropy of the probabilities"),
    "disagreement": ("disagreement", DISAGREEMENT),
}
"""Label and meaning of each score."""
MEASURES = {
    "auroc": ("AUROC", "how often a test example scores higher than an outlier", auroc),
    "fpr95": ("FPR95", "share of outliers that pass a threshold which 95 % of the test examples pass", fpr95),
}
"""Label and meaning of each metric of two sets of scores, and the function that computes it."""
METRICS = [
    Metric(
        f"{measure}_{score}",
        f"{label}, {words}",
        f"{meaning}, by {what}",
        lower_is_better=measure == "fpr95",
        percent=True,
        headline=score != "entropy",
    )
    for score, (words, what) in SCORES.items()
    for measure, (label, meaning, _) in MEASURES.items()
]
"""What rows about outliers hold; that of disagreement for ensembles alone."""


def entropy(logs: Tensor) -> Tensor:
    """Return -sum_y p(y) log p(y) of log-probabilities [..., classes]."""
    found: Tensor = torch.special.entr(logs.exp()).sum(-1)
    return found


def mutual_information(members: Tensor, mean: Tensor) -> Tensor:
    """Return the entropy of the mean minus the mean entropy of the members."""
    return entropy(mean) - entropy(members).mean(0)


def scores(members: Sequence[Classes]) -> dict[str, Tensor]:
    """Return the scores of examples by name, float64 [n], from the logits of the members of an ensemble."""
    logits = torch.stack([member.logs for member in members])
    mean = log_mean(logits)
    found = {"probability": mean.amax(-1).exp(), "entropy": -entropy(mean)}
    if len({id(member) for member in members}) > 1:  # a point beside itself cannot disagree
        found["disagreement"] = -mutual_information(logits.double().log_softmax(-1), mean)
    return found


def outlier_metrics(inside: dict[str, Tensor], outside: dict[str, Tensor]) -> dict[str, float]:
    """Return all measures of all scores, by the names of `METRICS`; NaN where a score is."""
    found = {}
    for name, familiar in inside.items():
        known = not bool(familiar.isnan().any() | outside[name].isnan().any())
        for measure, (_, _, of) in MEASURES.items():
            found[f"{measure}_{name}"] = of(familiar, outside[name]) if known else math.nan
    return found
