"""One network, trained or chosen otherwise: a moving average, its best epoch, SAM (Foret et al., 2021)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from subspaces.core import distributed
from subspaces.core.family import Subspace
from subspaces.core.shapes import Point
from subspaces.errors import ArgumentError
from subspaces.experiments.methods.checkpoints import Rows, rows, spanned
from subspaces.experiments.methods.fields import ABOVE_ZERO, FRACTION, setting
from subspaces.experiments.methods.method import METHODS, Backward, Hooks, Method

SPLITS = ("validation", "test")


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
        share = 1 - self.method.ema_decay ** int(self.steps)
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


class Stopping(Hooks["EarlyStopping"]):
    """Keeps the weights of the epoch with the highest accuracy on validation images, the first of equals.

    The accuracy on test images is only noted beside it, to say what a choice on them would have given.
    """

    watch = 50

    def __init__(self, method: "EarlyStopping", family: Subspace, epochs: int, seed: int) -> None:
        super().__init__(method, family, epochs, seed)
        self.scores: list[tuple[float, float]] = []  # of each epoch, on validation and test images
        self.best: Rows = {}

    def after_epoch(self, epoch: int, scores: Mapping[str, float]) -> None:
        validation, test = (scores[f"{split}_accuracy"] for split in SPLITS)
        if all(validation > before for before, _ in self.scores):
            self.best = rows(self.family)
        self.scores.append((validation, test))

    def result(self) -> Subspace:
        return spanned(self.family, [self.best], Point(), self.seed)

    @property
    def epoch(self) -> int:
        return int(self.summary()["stopping"][0]["epoch"])

    def summary(self) -> dict[str, Any]:
        """Return which epoch each split chooses, and its accuracies."""
        found = []
        for index, split in enumerate(SPLITS):
            column = [scores[index] for scores in self.scores]
            epoch = column.index(max(column))
            accuracies = {f"{name}_accuracy": self.scores[epoch][i] for i, name in enumerate(SPLITS)}
            found.append({"chosen_on": split, "epoch": epoch + 1, **accuracies})
        return {"stopping": found}

    def kept(self) -> dict[str, Tensor]:
        best = {f"best.{name}": row for name, row in self.best.items()}
        return best | {"scores": torch.tensor(self.scores, dtype=torch.float64).reshape(-1, 2)}

    def load(self, kept: Mapping[str, Tensor]) -> None:
        self.scores = [(validation, test) for validation, test in kept["scores"].tolist()]
        best = {key.removeprefix("best."): row for key, row in kept.items() if key != "scores"}
        self.best = {name: row.to(self.family.device) for name, row in best.items()}


@METHODS.add
@dataclass(frozen=True)
class EarlyStopping(Method):
    """One network, at its best epoch."""

    name = "early-stopping"
    meaning = "one network at its best epoch"
    hooks = Stopping

    def check(self, rest: Mapping[str, Any]) -> None:
        if not rest["validation"]:
            raise ArgumentError(
                f"validation={rest['validation']}: early-stopping chooses its epoch on held-out images; hold some out, "
                "such as --validation 5000"
            )


def sharp_gradient(backward: Backward, rho: float) -> None:
    """Leave in `.grad` the gradient at theta + rho g / ‖g‖, where g is the gradient at theta.

    The parameters come out exactly as they went in; those without a gradient stay where they are. Nothing waits for
    the device. Runs side by side have a ‖g‖ each.
    """
    backward(True)
    with torch.no_grad():
        before = [(each, each.clone()) for group in backward.groups for each in group if each.grad is not None]
        for group in backward.groups:
            _climb([(each, each.grad) for each in group if each.grad is not None], rho, backward.runs)
    backward(False)
    with torch.no_grad():
        for parameter, value in before:
            parameter.copy_(value)


def _climb(moved: list[tuple[nn.Parameter, Tensor]], rho: float, runs: int) -> None:
    """Move parameters along their gradients, by rho in all, or in each of several runs."""
    norms = [torch.linalg.vector_norm(distributed.local(each).flatten(runs), dim=-1) for _, each in moved]
    length = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    if distributed.mesh_of(moved[0][0]) is not None:  # each process has a part of the gradient
        length = distributed.total(length.square(), moved[0][0]).sqrt()
    scale = rho / (length + 1e-12)
    for parameter, gradient in moved:
        step = distributed.local(gradient) * scale.view(*scale.shape, *[1] * (gradient.ndim - runs))
        distributed.local(parameter).add_(step)


class Sharpness(Hooks["Sam"]):
    """Takes the gradient of the worst neighbour."""

    together = True

    def gradient(self, backward: Backward) -> None:
        sharp_gradient(backward, self.method.sam_rho)


@METHODS.add
@dataclass(frozen=True)
class Sam(Method):
    """Sharpness-aware minimisation."""

    name = "sam"
    meaning = "sharpness-aware minimisation (SAM)"
    cost = 2.0
    hooks = Sharpness
    sam_rho: float = setting(0.05, "How far each step climbs before it takes its gradient.", ABOVE_ZERO, symbol="ρ")
