"""Accuracy and loss on a grid of the plane through three networks, with the subspaces drawn in it."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from subspaces.evaluation import metrics
from subspaces.evaluation.bench import Bench
from subspaces.evaluation.journal import Journal
from subspaces.evaluation.plane import Span
from subspaces.evaluation.points import coefficients, kind, outline, to_place
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.record import Corner, Drawn, Plane
from subspaces.subspace import Subspace

MARGIN = 0.2  # of the extent of the three networks, on every side
SPLIT = "test"
Tick = Callable[[int], None]


def planned(journal: Journal, span: Span, cells: int, statistics_images: int) -> Plane:
    """Return the plane of a record that has these cells, whatever of it is measured; an empty one if there is none."""
    images = len(getattr(journal.bench.dataset, SPLIT))
    wanted = empty_plane(journal.bench, span, cells, images, statistics_images)
    same = next((plane for plane in journal.record.planes if same_grid(plane, wanted)), None)
    if same is not None:
        return same
    others = [plane for plane in journal.record.planes if plane.name != wanted.name]
    journal.record.planes = sorted([*others, wanted], key=lambda plane: plane.name)
    return wanted


def unmeasured(plane: Plane) -> list[tuple[int, int]]:
    """Return row and column of the cells that are not measured."""
    return [(j, i) for j, row in enumerate(plane.accuracy) for i, value in enumerate(row) if value is None]


def measure(journal: Journal, plane: Plane, span: Span, predictor: Predictor, tick: Tick) -> None:
    """Measure the cells that are missing in a plane of the journal's record."""
    for j, i in unmeasured(plane):
        plane.accuracy[j][i], plane.nll[j][i] = measure_cell(span, predictor, plane.xs[i], plane.ys[j])
        journal.touch()
        tick(1)


def empty_plane(bench: Bench, span: Span, cells: int, images: int, statistics_images: int) -> Plane:
    """Return the plane of a span with nothing measured yet."""
    low, high = span.corners.min(0).values, span.corners.max(0).values
    margin = MARGIN * (high - low)
    xs, ys = (
        torch.linspace(float(first), float(last), cells, dtype=torch.float64).tolist()
        for first, last in zip(low - margin, high + margin, strict=True)
    )
    labels = [network.label for network in span.networks]
    return Plane(
        name=", ".join(labels),
        corners=[Corner(label, x, y) for label, (x, y) in zip(labels, span.corners.tolist(), strict=True)],
        xs=xs,
        ys=ys,
        accuracy=[[None] * cells for _ in ys],
        nll=[[None] * cells for _ in ys],
        split=SPLIT,
        images=images,
        statistics_images=statistics_images,
        drawn=drawings(bench, span),
    )


def drawings(bench: Bench, span: Span) -> list[Drawn]:
    """Return the run's subspace and those that the three networks come from, in the coordinates of the plane."""
    found = []
    corners = [network.bench for network in span.networks]
    for one in dict.fromkeys([bench, *corners]):
        shape, name = one.shape, f"{one.recipe.name} seed {one.recipe.seed}"
        single = kind(shape) == "single"
        if single and one in corners:
            continue
        if (path := outline(shape)) is not None:
            found.append(_drawn(span, one.family, name, path))
        middle = coefficients(shape, to_place(shape.midpoint().tolist()))
        found.append(_drawn(span, one.family, name if single else f"{name} midpoint", [middle]))
    return found


def _drawn(span: Span, family: Subspace, label: str, rows: Sequence[Sequence[float]]) -> Drawn:
    places, distance = span.projected(family, rows)
    x, y = places.T.tolist()
    return Drawn(label, "path" if len(rows) > 1 else "point", x, y, distance.tolist())


def same_grid(first: Plane, second: Plane) -> bool:
    """Say whether two planes are the same cells of the same networks, up to rounding."""

    def described(plane: Plane) -> tuple[object, ...]:
        return plane.name, plane.split, plane.images, plane.statistics_images, len(plane.xs), len(plane.ys)

    def numbers(plane: Plane) -> Tensor:
        corners = [value for corner in plane.corners for value in (corner.x, corner.y)]
        return torch.tensor([*corners, *plane.xs, *plane.ys], dtype=torch.float64)

    if described(first) != described(second):
        return False
    scale = float(numbers(second).abs().max())
    return torch.allclose(numbers(first), numbers(second), rtol=0, atol=1e-6 * scale)


def measure_cell(span: Span, predictor: Predictor, x: float, y: float) -> tuple[float, float]:
    """Return accuracy and loss of the network at a point of the plane."""
    logits = predictor(span.weights(x, y))[SPLIT].logits
    found, labels = logits.log_softmax(1), predictor.labels[SPLIT]
    return metrics.accuracy(found.exp(), labels), metrics.nll(found, labels)
