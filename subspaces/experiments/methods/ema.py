"""The exponential moving average of weights in training."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from subspaces.core import distributed
from subspaces.core.family import Subspace
from subspaces.core.shapes import Point
from subspaces.errors import ArgumentError
from subspaces.experiments.methods.checkpoints import spanned
from subspaces.experiments.methods.fields import FRACTION, setting
from subspaces.experiments.methods.method import METHODS, Hooks, Method


class Averaging(Hooks["Ema"]):
    """Averages the weights over the steps; one counts the less the longer ago it was.

    s_t = d s_(t-1) + (1 - d) theta_t with s_0 = 0, and the average is s_t / (1 - d^t): a weighted mean of
    theta_1 … theta_t alone, in which the random weights of the start have no part.
    """

    together = True

    def __init__(self, method: "Ema", family: Subspace, epochs: int, seed: int) -> None:
        super().__init__(method, family, epochs, seed)
        self.sums = {name: torch.zeros_like(omega) for name, omega in family.omega.items()}
        self.steps = torch.zeros((), dtype=torch.int64, device=family.device)
        self._merge = get_ema_multi_avg_fn(method.ema_decay)

    def after_step(self) -> None:
        weights = [omega.detach() for omega in self.family.omega.values()]
        self._merge(list(self.sums.values()), weights, self.steps)
        self.steps.add_(1)

    def current_family(self) -> Subspace:
        steps = int(self.steps)
        if not steps:
            raise ArgumentError("the average of no step: expected at least one")
        share = 1 - self.method.ema_decay**steps
        average = {name: distributed.row(total, 0) / share for name, total in self.sums.items()}
        return spanned(self.family, [average], Point(), self.seed)

    def live(self) -> dict[str, Tensor]:
        return {"steps": self.steps} | {f"sum.{name}": total for name, total in self.sums.items()}


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
