"""Metrics on planes through three networks; of accuracy the error."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation.comparing import Group
from subspaces.evaluation.curves import Array, described
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.plane import begun
from subspaces.evaluation.rows import Plane
from subspaces.reports.figures import style
from subspaces.text import nearest

ACROSS = 3  # panels in a row
CASING = (withStroke(linewidth=3.4, foreground="black"),)
HALO = (withStroke(linewidth=2.2, foreground="white"),)
Panel = tuple[str, Plane]
"""A plane, and of which run it is."""


def plane(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw one panel for each plane, for the error and below it for the loss, each with one colour bar."""
    panels = _planes(groups, split)
    known = list(panels[0][1].values)
    if metric is not None and metric not in known:
        raise ArgumentError(f"metric={metric!r} was not measured on planes: {nearest(metric, known)}")
    quantities = [described(name, groups) for name in (known if metric is None else [metric])]
    across = min(len(panels), ACROSS)
    rows = -(-len(panels) // across)  # for each quantity
    width = style.COLUMN if across == 1 else style.PAGE
    aspect = max((one.ys[-1] - one.ys[0]) / (one.xs[-1] - one.xs[0]) for _, one in panels)
    height = 0.3 + ((width - 0.9) / across * aspect + 0.5) * rows * len(quantities)
    drawing = style.blank(width, height, layout="compressed")
    axes = drawing.subplots(rows * len(quantities), across, squeeze=False)
    run = groups[0].training
    dataset = "" if run is None else f"{run.recipe['dataset']}-"  # which all corners have in common
    for at, quantity in enumerate(quantities):
        _quantity(drawing, axes[at * rows : (at + 1) * rows].ravel(), panels, quantity, dataset)
    drawing.suptitle(style.heading(groups, split), fontsize=style.FONT)
    style.settle(drawing, fit=True)
    return drawing


def _planes(groups: Sequence[Group], split: str) -> list[Panel]:
    found = []
    for group in groups:
        for one, number in zip(group.evaluations, group.seeds, strict=True):
            seed = f", seed {number}" if len(group.evaluations) > 1 else ""
            found += [(group.label + seed, each) for each in one.planes if each.split == split and begun(each)]
    if not found:
        raise UserError(
            f"no plane on {split!r} among the runs: `subspaces evaluate RUN --plane` measures the one through three "
            "vertices, --plane-through OTHER one through networks of other runs"
        )
    return found


def values(plane: Plane, quantity: Metric) -> Array:
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


def _quantity(drawing: Figure, axes: Any, panels: Sequence[Panel], quantity: Metric, dataset: str) -> None:
    grids = [values(one, quantity) for _, one in panels]
    steps = levels(grids)
    for each, (title, one), grid in zip(axes, panels, grids, strict=False):
        masked = np.ma.masked_invalid(grid)
        filled = each.contourf(one.xs, one.ys, masked, steps, cmap="viridis", extend="max")
        each.contour(one.xs, one.ys, masked, steps, colors="white", linewidths=0.3, alpha=0.6)
        _decorate(each, one, dataset)
        each.set_title(title)
    for each in axes[len(panels) :]:
        each.set_axis_off()
    label = {"accuracy": "error (%)", "nll": "loss (NLL)"}.get(quantity.name, quantity.axis)
    long = 22 * len(axes) / min(len(panels), ACROSS)
    bar = drawing.colorbar(filled, ax=list(axes), label=label, ticks=steps[::2], pad=0.02, aspect=long)
    bar.ax.set_yticklabels([f"{step:g}" for step in steps[::2]])


def _decorate(axes: Axes, plane: Plane, dataset: str) -> None:
    """Draw the subspace, dashed or hollow where it is off the plane and only its shadow is seen, and the corners."""
    for drawn in plane.drawn:
        off = max(drawn.distance, default=0.0) > 1e-2 * (plane.xs[-1] - plane.xs[0])
        if drawn.kind == "path":
            dashes = style.DASHED if off else "-"
            axes.plot(drawn.x, drawn.y, color="white", linewidth=1.8, linestyle=dashes, path_effects=CASING)
        else:
            face = "none" if off else "white"
            axes.plot(drawn.x, drawn.y, "D", color="white", markerfacecolor=face, markeredgecolor="black", markersize=4)
    for corner in plane.corners:
        axes.plot(corner.x, corner.y, "o", color="white", markeredgecolor="black", markersize=5, zorder=4)
        _name(axes, plane, corner.label.removeprefix(dataset).replace(" seed ", "\nseed ", 1), corner.x, corner.y)
    axes.spines[:].set_visible(True)
    axes.set_aspect("equal")
    axes.grid(False)
    axes.set(xlim=(plane.xs[0], plane.xs[-1]), ylim=(plane.ys[0], plane.ys[-1]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    if axes.get_subplotspec().is_last_row():  # type: ignore[union-attr]
        axes.set_xlabel("L2 distance of weights")


def _name(axes: Axes, plane: Plane, words: str, x: float, y: float) -> None:
    """Write a name above an upper corner or below a lower one; a long one, or in a flat plane, on the inner side."""
    width, height = plane.xs[-1] - plane.xs[0], plane.ys[-1] - plane.ys[0]
    across = (x - plane.xs[0]) / width
    side = 0 if 0.35 < across < 0.65 else 1 if across < 0.5 else -1
    outside = height > width / 2 and "\n" not in words
    up = 1 if (y - plane.ys[0] > height / 2) is outside else -1
    aligned: dict[str, Any] = {"ha": ("center", "left", "right")[side], "va": "bottom" if up > 0 else "top"}
    label = axes.annotate(words, (x, y), (-2 * side, 5 * up), textcoords="offset points", zorder=5, **aligned)
    label.set(multialignment="center", path_effects=list(HALO), in_layout=False)  # a long name makes no axes small
