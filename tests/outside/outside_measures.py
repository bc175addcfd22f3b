"""A metric, an answer and a task that the package does not know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from subspaces.evaluation import ANSWERS, METRICS, TASKS, Answer, Metric, Task, average
from subspaces.evaluation.answers import Family
from subspaces.evaluation.points import Item, kind

THIRDS = (1 / 3, 2 / 3)

METRICS.add(
    Metric(
        "sureness",
        "sureness",
        "mean probability of what is right",
        lower_is_better=False,
        percent=True,
        headline=True,
        **average(lambda said, right: said.probabilities.gather(1, right[:, None])),
    )
)


def thirds(family: Family) -> Item | None:
    return Item("thirds", THIRDS, "thirds") if kind(family.shape) == "interval" else None


ANSWERS.add(
    Answer("thirds", "two points a third from the ends, averaged", thirds, lambda family, item: "ensemble of thirds")
)


@dataclass(frozen=True)
class Counts(Task):
    """How many: a network returns the logarithm of the rate of a Poisson distribution."""

    name: ClassVar[str] = "counts"
    averages: ClassVar[tuple[str, ...]] = ("rates",)

    def parts(self, output: Any, target: Any, features: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return output.double().flatten().exp(), target.double().flatten()

    def combine(self, members: Sequence[Tensor], average: str) -> Tensor:
        return torch.stack(list(members)).mean(0)


TASKS.add(Counts())


def deviances(rate: Tensor, count: Tensor) -> Tensor:
    return 2 * (torch.xlogy(count, count / rate) - count + rate)


METRICS.add(
    Metric("deviance", "deviance", "how far counts are from their rates", tasks=("counts",), **average(deviances))
)
