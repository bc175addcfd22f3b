"""Labels of points in a picture, put where they hide least."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

SIDES = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))
GAP = 5.0  # points between a label and what it names
HALO = (withStroke(linewidth=2.2, foreground="white"),)


def place(figure: Figure, axes: Axes, names: Sequence[tuple[str, float, float]]) -> list[Annotation]:
    """Write names beside points, inside the axes and clear of lines, markers and each other where there is room."""
    obstacles = _drawn(axes)
    frame = axes.get_window_extent()
    taken: list[Bbox] = []
    written = []
    for words, x, y in names:
        best: tuple[float, Annotation, Bbox] | None = None
        for side in SIDES:
            label = _write(axes, words, (x, y), side)
            box = label.get_window_extent(figure.canvas.get_renderer())  # type: ignore[attr-defined]
            cost = _cost(box, frame, obstacles, taken)
            if best is None or cost < best[0]:
                if best is not None:
                    best[1].remove()
                best = cost, label, box
            else:
                label.remove()
        assert best is not None
        taken.append(best[2])
        written.append(best[1])
    return written


def _write(axes: Axes, words: str, at: tuple[float, float], side: tuple[int, int]) -> Annotation:
    across, up = side
    aligned: dict[str, Any] = {
        "ha": {-1: "right", 0: "center", 1: "left"}[across],
        "va": {-1: "top", 0: "center", 1: "bottom"}[up],
        "multialignment": "center",
    }
    offset = GAP * np.array(side) / np.hypot(*side)
    label = axes.annotate(words, at, tuple(offset), textcoords="offset points", zorder=5, **aligned)
    label.set_path_effects(list(HALO))
    label.set_in_layout(False)  # a long name must not make the axes small
    return label


def _drawn(axes: Axes) -> Any:
    """Return points on all lines and markers of the axes, in pixels [n, 2]."""
    found = [np.zeros((0, 2))]
    for line in axes.lines:
        corners = axes.transData.transform(np.column_stack([line.get_xdata(), line.get_ydata()]))
        steps = np.linspace(0, 1, 30)[:, None]
        found += [corners, *(a + steps * (b - a) for a, b in itertools.pairwise(corners))]
    return np.concatenate(found)


def _cost(box: Bbox, frame: Bbox, obstacles: Any, taken: Sequence[Bbox]) -> float:
    """Return how bad a place is: what sticks out of the axes, what is hidden, and other labels below it."""
    inside = Bbox.intersection(box, frame)
    outside = 1 - (inside.width * inside.height / (box.width * box.height) if inside is not None else 0)
    hidden = sum(box.contains(x, y) for x, y in obstacles) / max(1, len(obstacles))
    return 10 * outside + hidden + 5 * sum(box.overlaps(other) for other in taken)
