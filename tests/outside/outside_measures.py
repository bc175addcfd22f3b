"""A metric and an answer that the package does not know."""

from subspaces.evaluation import ANSWERS, METRICS, Answer, Metric, average
from subspaces.evaluation.points import Family, Item, kind

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
