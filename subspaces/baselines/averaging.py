"""The exponential moving average of weights in training."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn


class MovingAverage:
    """An average in which a step counts the less the longer ago it was.

    s_t = d s_(t-1) + (1 - d) theta_t with s_0 = 0, and the average is s_t / (1 - d^t): a weighted mean of
    theta_1 … theta_t alone, in which the random weights of the start have no part. `update` waits for nothing
    and changes its tensors in place, so that a CUDA graph can capture it.

    Args:
        parameters: what is averaged.
        decay: d, the share of the sum that a step leaves.
    """

    def __init__(self, parameters: Iterable[Tensor], decay: float) -> None:
        self.parameters = [parameter.detach() for parameter in parameters]
        self.sums = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = torch.zeros((), dtype=torch.int64, device=self.parameters[0].device)
        self.decay = decay
        self._merge = get_ema_multi_avg_fn(decay)

    def update(self) -> None:
        """Take in the parameters as they are now."""
        self._merge(self.sums, self.parameters, self.steps)
        self.steps.add_(1)

    def values(self) -> list[Tensor]:
        """Return the average; the number of steps is read from the device."""
        steps = int(self.steps)
        if not steps:
            raise ValueError("the average of no step: expected at least one update")
        return [total / (1 - self.decay**steps) for total in self.sums]
