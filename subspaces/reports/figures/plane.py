"""Metrics on planes through three networks, whose names are put where they hide least; of accuracy the error."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation.comparing import Group, place
from subspaces.evaluation.curves import Array, described
from subspaces.evaluation.plane import begun
from subspaces.evaluation.rows import Description, Drawn, Plane
from subspaces.reports.figures import style
from subspaces.text import nearest

ACROSS = 3  # panels in a row
COLOURS = "viridis"
CASING = (withStroke(linewidth=3.4, foreground="black"),)
SIDES = ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1))
GAP = 5.0  # points between a label and what it names
HALO = (withStroke(linewidth=2.2, foreground="white"),)


@dataclass(frozen=True)
class Panel:
    """A plane and of which run it is."""

    title: str
    plane: Plane


def plane(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw one panel for each plane, for the error and below it for the loss, each with one colour bar."""
    panels = planes(groups, split)
    known = list(panels[0].plane.values)
    metric = {"error": "accuracy", "loss": "nll"}.get(metric or "", metric)
    if metric is not None and metric not in known:
        raise ArgumentError(f"metric={metric!r} was not measured on planes: {nearest(metric, known)}")
    quantities = [described(name, groups) for name in (known if metric is None else [metric])]
    across = min(len(panels), ACROSS)
    rows = -(-len(panels) // across)  # for each quantity
    width = style.COLUMN if across == 1 else style.PAGE
    side = (width - 0.9) / across
    height = 0.3 + (side * _aspect(panels) + 0.5) * rows * len(quantities)
    drawing = style.blank(width, height, layout="compressed")
    axes = drawing.subplots(rows * len(quantities), across, squeeze=False)
    for at, quantity in enumerate(quantities):
        _quantity(drawing, axes[at * rows : (at + 1) * rows].ravel(), panels, quantity)
    drawing.suptitle(style.heading(groups, split), fontsize=style.FONT)
    style.fit(drawing)
    for at in range(len(quantities)):
        for each, panel in zip(axes[at * rows :].ravel(), panels, strict=False):
            corners = panel.plane.corners
            place_names(drawing, each, [(short(corner.label, groups), corner.x, corner.y) for corner in corners])
    return drawing


def planes(groups: Sequence[Group], split: str) -> list[Panel]:
    """Return every plane that was measured on a split."""
    found, unfinished = [], ""
    for group in groups:
        for one, number in zip(group.evaluations, group.seeds, strict=True):
            for plane in (plane for plane in one.planes if plane.split == split):
                if not begun(plane):
                    unfinished = f"; the plane {plane.name!r} of {place(one)} is empty"
                    continue
                seed = f", seed {number}" if len(group.evaluations) > 1 else ""
                found.append(Panel(f"{group.label}{seed}", plane))
    if not found:
        raise UserError(
            f"no plane on {split!r} among the runs{unfinished}: `subspaces evaluate RUN --plane` measures the one "
            "through three vertices, --plane-through OTHER one through networks of other runs"
        )
    return found


def values(plane: Plane, quantity: Description) -> Array:
    """Return a metric on the grid [y, x], as it is shown, the error in place of accuracy; NaN where not computed."""
    cells = np.array(plane.values[quantity.name], np.float64)
    return np.asarray(quantity.scale * (1 - cells if quantity.name == "accuracy" else cells))


def levels(grids: Sequence[Array], count: int = 12) -> Array:
    """Return levels from the lowest value on, closer together there: what is of interest is the valley."""
    known = np.concatenate([grid[np.isfinite(grid)] for grid in grids])
    low, high = float(known.min()), float(np.quantile(known, 0.9))
    if high <= low:
        high = low + 1
    spaced = low + (high - low) * np.linspace(0, 1, count) ** 1.7
    digits = max(0, 2 - int(np.floor(np.log10(high - low))))
    return np.unique([np.floor(low * 10**digits) / 10**digits, *np.round(spaced[1:], digits)])


def short(label: str, groups: Sequence[Group]) -> str:
    """Return the name of a corner without the data set, which all have in common, and in two lines if it is long."""
    run = groups[0].training
    return label.removeprefix("" if run is None else f"{run.recipe['dataset']}-").replace(" seed ", "\nseed ", 1)


def _aspect(panels: Sequence[Panel]) -> float:
    """Return the height of the highest plane for a width of one."""
    return max((p.plane.ys[-1] - p.plane.ys[0]) / (p.plane.xs[-1] - p.plane.xs[0]) for p in panels)


def _quantity(drawing: Figure, axes: Any, panels: Sequence[Panel], quantity: Description) -> None:
    grids = [values(panel.plane, quantity) for panel in panels]
    steps = levels(grids)
    for each, panel, grid in zip(axes, panels, grids, strict=False):
        masked = np.ma.masked_invalid(grid)
        filled = each.contourf(panel.plane.xs, panel.plane.ys, masked, steps, cmap=COLOURS, extend="max")
        each.contour(panel.plane.xs, panel.plane.ys, masked, steps, colors="white", linewidths=0.3, alpha=0.6)
        filled.set_rasterized(False)
        _decorate(each, panel)
    for each in axes[len(panels) :]:
        each.set_axis_off()
    label = {"accuracy": "error (%)", "nll": "loss (NLL)"}.get(quantity.name, quantity.axis)
    bar = drawing.colorbar(
        filled, ax=list(axes), label=label, ticks=steps[::2], pad=0.02, aspect=22 * len(axes) / min(len(panels), ACROSS)
    )
    bar.ax.set_yticklabels([f"{step:g}" for step in steps[::2]])


def _decorate(axes: Axes, panel: Panel) -> None:
    """Draw the subspace and the corners."""
    for drawn in panel.plane.drawn:
        _draw(axes, drawn, panel.plane)
    for corner in panel.plane.corners:
        axes.plot(corner.x, corner.y, "o", color="white", markeredgecolor="black", markersize=5, zorder=4)
    axes.spines[:].set_visible(True)
    axes.set_aspect("equal")
    axes.grid(False)
    axes.set(xlim=(panel.plane.xs[0], panel.plane.xs[-1]), ylim=(panel.plane.ys[0], panel.plane.ys[-1]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.set_title(panel.title)
    if axes.get_subplotspec().is_last_row():  # type: ignore[union-attr]
        axes.set_xlabel("L2 distance of weights")


def _draw(axes: Axes, drawn: Drawn, plane: Plane) -> None:
    """Draw a path or points; dashed or hollow where they are off the plane and only their shadow is seen."""
    extent = max(plane.xs) - min(plane.xs)
    off = max(drawn.distance, default=0.0) > 1e-2 * extent
    if drawn.kind == "path":
        axes.plot(
            drawn.x, drawn.y, color="white", linewidth=1.8, linestyle=style.DASHED if off else "-", path_effects=CASING
        )
    else:
        face = "none" if off else "white"
        axes.plot(drawn.x, drawn.y, "D", color="white", markerfacecolor=face, markeredgecolor="black", markersize=4)


def place_names(figure: Figure, axes: Axes, names: Sequence[tuple[str, float, float]]) -> list[Annotation]:
    """Write names beside points, inside the axes and clear of lines, markers and each other where there is room."""
    obstacles = _on_lines(axes)
    taken: list[Bbox] = []
    written = []
    for words, x, y in names:
        labels = [_write(axes, words, (x, y), side) for side in SIDES]
        boxes = [label.get_window_extent(figure.canvas.get_renderer()) for label in labels]  # type: ignore[attr-defined]
        costs = [_cost(box, axes.get_window_extent(), obstacles, taken) for box in boxes]
        best = costs.index(min(costs))
        for label in (*labels[:best], *labels[best + 1 :]):
            label.remove()
        taken.append(boxes[best])
        written.append(labels[best])
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


def _on_lines(axes: Axes) -> Any:
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
