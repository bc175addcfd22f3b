"""Regression: predicted means, and variances where the network has them, against targets [n, d].

A prediction that is NaN covers no target; all other metrics are NaN if any prediction is.
"""

import math
from functools import partial

import torch
from torch import Tensor

from subspaces.evaluation.metrics import METRICS, Metric, average

INTERVAL = 0.9


class Normal:
    """What a network predicts: a mean [n, d], and a variance [n, d] where it has one."""

    def __init__(self, mean: Tensor, variance: Tensor | None = None) -> None:
        self.mean, self.variance = mean.double(), None if variance is None else variance.double()

    @property
    def broken(self) -> Tensor:
        unknown = self.mean.isnan() if self.variance is None else self.mean.isnan() | self.variance.isnan()
        return unknown.any(1).sum()

    @property
    def plain(self) -> Tensor:
        """What other libraries take for a prediction."""
        return self.mean.float()

    def __len__(self) -> int:
        return len(self.mean)


def _negative_log_density(prediction: Normal, target: Tensor) -> Tensor | None:
    """Return ½ (log 2 pi sigma² + (y - mu)² / sigma²)."""
    if prediction.variance is None:
        return None
    squares = (target - prediction.mean).square()
    return (torch.log(2 * math.pi * prediction.variance) + squares / prediction.variance) / 2


def _covered(prediction: Normal, target: Tensor) -> Tensor | None:
    if prediction.variance is None:
        return None
    reach = math.sqrt(2) * torch.erfinv(torch.tensor(INTERVAL, dtype=torch.float64))
    return (target - prediction.mean).abs() <= reach.to(target.device) * prediction.variance.sqrt()


_metric = partial(Metric, tasks=("regression",), headline=True)
RMSE = average(lambda prediction, y: (y - prediction.mean).square(), torch.sqrt)
DENSITY = "mean negative log-density of the targets under the predicted normals"
COVERAGE = "share of the targets inside the predicted 90 % intervals; 90 % is right"
APART = "root of the mean squared difference between what two networks predict"

for _each in (
    _metric("rmse", "RMSE", "root of the mean squared error", **RMSE),
    _metric("mae", "MAE", "mean absolute error", **average(lambda prediction, y: (y - prediction.mean).abs())),
    _metric("gaussian_nll", "Gaussian NLL", DENSITY, **average(_negative_log_density)),
    _metric("interval_coverage", "coverage", COVERAGE, False, True, goal=INTERVAL, **average(_covered)),
):
    METRICS.add(_each)

DISTANCES = (Metric("difference", "difference", APART, **average(lambda p, q: (p.mean - q.mean).square(), torch.sqrt)),)
"""How differently two networks answer."""
