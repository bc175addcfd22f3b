"""Metrics of predicted class probabilities [n, classes] against labels [n]."""

import torch
from torch import Tensor


def accuracy(probabilities: Tensor, labels: Tensor) -> float:
    """Return the share of examples whose most probable class is the label."""
    from torchmetrics.functional.classification import multiclass_accuracy

    return float(multiclass_accuracy(probabilities, labels, probabilities.shape[1], average="micro"))


def expected_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 20) -> float:
    """Return ECE = sum_b |B_b|/n |acc(B_b) - conf(B_b)| over bins of equal width.

    A confidence of 1.0 belongs to the last bin (torchmetrics alone would give it a bin of its own).
    """
    from torchmetrics.functional.classification import multiclass_calibration_error

    below_one = 1 - torch.finfo(torch.float32).eps
    clipped = probabilities.float().clamp(max=below_one)
    return float(multiclass_calibration_error(clipped, labels, probabilities.shape[1], n_bins=bins, norm="l1"))
