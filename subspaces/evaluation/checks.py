"""Does a number depend on how many images the batch-norm statistics were made from?"""

from collections.abc import Callable, Sequence

from torch import Tensor

from subspaces.evaluation import metrics
from subspaces.evaluation.bench import Bench
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.plane import Span
from subspaces.evaluation.points import Place, kind, plan
from subspaces.evaluation.record import Check

SPLIT = "test"
SIDE = 5  # cells of the plane's grid in each direction, from edge to edge
Tick = Callable[[int], None]
Weights = Callable[[], dict[str, Tensor]]
Points = dict[tuple[float, ...], Weights]


def points_of(bench: Bench) -> Points:
    """Return the weights at the ends or vertices and at the midpoint of a run."""
    if kind(bench.shape) == "simplex":
        items = plan(bench.shape, random=0, triangle=0)
        places: list[Place] = [place for item in items if item.role != "edge" for place in item.points]
    else:
        places = list(dict.fromkeys(place for item in plan(bench.shape, grid=(0.0, 1.0)) for place in item.points))

    def weights(place: Place) -> Weights:
        return lambda: bench.weights(place)

    return {place if isinstance(place, tuple) else (place,): weights(place) for place in places}


def cells_of(span: Span, xs: Sequence[float], ys: Sequence[float]) -> Points:
    """Return the weights in some cells of a plane, from edge to edge."""

    def spread(values: Sequence[float]) -> list[float]:
        return [values[round(step * (len(values) - 1) / (SIDE - 1))] for step in range(SIDE)]

    def weights(x: float, y: float) -> Weights:
        return lambda: span.weights(x, y)

    return {(x, y): weights(x, y) for y in spread(ys) for x in spread(xs)}


def check(journal: Journal, where: str, points: Points, batches: int, tick: Tick) -> None:
    """Measure points with statistics of so many batches, and add that to the record, unless it is there."""
    predictor = journal.bench.predictor([SPLIT], batches)
    at, images, labels = [list(point) for point in points], predictor.statistics_images, predictor.labels[SPLIT]
    others = [old for old in journal.record.checks if (old.where, old.statistics_images) != (where, images)]
    if any(old.at == at for old in journal.record.checks if old not in others):
        return tick(len(points))
    scores = []
    for weights in points.values():
        found = predictor(weights())[SPLIT].logits.log_softmax(1)
        scores.append((metrics.accuracy(found.exp(), labels), metrics.nll(found, labels)))
        tick(1)
    made = Check(where, at, SPLIT, images, [accuracy for accuracy, _ in scores], [nll for _, nll in scores])
    journal.record.checks = sorted([*others, made], key=lambda one: (one.where, one.statistics_images))
    return journal.touch()
