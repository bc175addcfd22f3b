"""The exponential moving average of weights in training."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from subspaces.methods.checkpoints import spanned
from subspaces.methods.fields import FRACTION, setting
from subspaces.methods.method import METHODS, Hooks, Method
from subspaces.shapes import Point
from subspaces.subspace import Subspace


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


class Averaging(Hooks["Ema"]):
    """Averages the weights over the steps."""

    def __init__(self, method: "Ema", family: Subspace, epochs: int, seed: int) -> None:
        super().__init__(method, family, epochs, seed)
        self.average = MovingAverage(family.omega.values(), method.ema_decay)

    def after_step(self) -> None:
        self.average.update()

    def so_far(self) -> Subspace:
        averages = zip(self.family.omega, self.average.values(), strict=True)
        return spanned(self.family, [{name: value[0] for name, value in averages}], Point(), self.seed)

    def live(self) -> dict[str, Tensor]:
        named = zip(self.family.omega, self.average.sums, strict=True)
        return {"steps": self.average.steps} | {f"sum.{name}": total for name, total in named}


@METHODS.add
@dataclass(frozen=True)
class Ema(Method):
    """The moving average of one network."""

    name = "ema"
    meaning = "the running average of one network"
    hooks = Averaging
    ema_decay: float = setting(
        0.999,
        "How much of the running average each step keeps (0.999: the last thousand steps or so).",
        FRACTION,
        symbol="decay",
    )
