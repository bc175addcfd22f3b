"""One of everything that a package can add to subspaces: import this file, and each has its name everywhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from subspaces.core.shapes import Shape, _Interval
from subspaces.evaluation import ANSWERS, METRICS, TASKS, Answer, Item, Metric, Task, average
from subspaces.evaluation.points import Family, kind
from subspaces.experiments.methods import ABOVE_ZERO, METHODS, POSITIVE, Backward, Hooks, Method, setting
from subspaces.experiments.methods.subspaces import Spanned
from subspaces.experiments.paper import FIGURES, Figure
from subspaces.experiments.training import RECIPES, Recipe

# A shape, and a method that trains it


@dataclass(frozen=True)
class Polygon(_Interval):
    """The closed path through m vertices, with an equal share of alpha for each edge."""

    m: int = 4

    @property
    def vertices(self) -> int:
        return self.m

    def coefficients(self, alpha: Tensor) -> Tensor:
        position = alpha[..., None] * self.m - torch.arange(self.m, device=alpha.device)
        return F.relu(1 - position.abs()) + F.relu(1 - (position - self.m).abs())

    def separation(self, first: Tensor, second: Tensor) -> Tensor:
        apart = (first - second).abs()
        return 2 * torch.minimum(apart, 1 - apart)


@METHODS.add
@dataclass(frozen=True)
class Ring(Spanned):
    name = "ring"
    meaning = "all networks on a closed path through several"
    answers = ("midpoint", "pair")
    vertices: int = setting(4, "Vertices of the subspace.", POSITIVE)

    def shape(self) -> Shape:
        return Polygon(self.vertices)


# A method, with what it does in a step, and a recipe


class Clipping(Hooks["Clipped"]):
    def gradient(self, backward: Backward) -> None:
        backward(True)
        torch.nn.utils.clip_grad_norm_(self.family.parameters(), self.method.longest)


@METHODS.add
@dataclass(frozen=True)
class Clipped(Method):
    name = "clipped"
    meaning = "one network, trained with gradients that are never long"
    hooks = Clipping
    longest: float = setting(1.0, "How long the gradient of a step may be.", ABOVE_ZERO)


RECIPES.add(Recipe(name="digits-clipped", dataset="digits", network="mlp", method="clipped", pad=0))


# A metric


def among_two(said: Any, right: Tensor) -> Tensor:
    return (said.probabilities.topk(2).indices == right[:, None]).any(1)


METRICS.add(
    Metric(
        "top2",
        "top-2 accuracy",
        "share of examples with the right class among two",
        lower_is_better=False,
        percent=True,
        headline=True,
        **average(among_two),
    )
)


# An answer


def thirds(family: Family) -> Item | None:
    return Item("thirds", (1 / 3, 2 / 3), "thirds") if kind(family.shape) == "interval" else None


ANSWERS.add(
    Answer("thirds", "two points a third from the ends, averaged", thirds, lambda family, item: "ensemble of thirds")
)


# A task, and a metric for it


@dataclass(frozen=True)
class Counts(Task):
    """How many: a network returns the logarithm of a rate."""

    name: ClassVar[str] = "counts"
    averages: ClassVar[tuple[str, ...]] = ("rates",)

    def parts(self, output: Tensor, target: Tensor, features: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return output.flatten().exp(), target.flatten()

    def combine(self, members: Sequence[Tensor], average: str) -> Tensor:
        return torch.stack(list(members)).mean(0)


def apart(rate: Tensor, count: Tensor) -> Tensor:
    return (rate - count).abs()


TASKS.add(Counts())
METRICS.add(Metric("apart", "distance", "how far counts are from rates", tasks=("counts",), **average(apart)))


# A figure of the paper

FIGURES.add(
    Figure(
        name="moving-average",
        where="Figure 22",
        shows="how well a moving average of the weights is calibrated",
        on=["cifar10"],
        recipes={"standard": {}, "ema": {"method": "ema", "ema_decay": 0.98}},
        claims={"a moving average is better calibrated than standard training": "standard > ema in ece"},
        picture="reliability",
    )
)
