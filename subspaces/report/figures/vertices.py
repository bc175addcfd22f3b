"""The midpoint against the number of vertices."""

import re
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subspaces.report.figures import style
from subspaces.report.figures.style import Look
from subspaces.report.reading import Array, Curve, Group
from subspaces.training.runs import RunError


def figure(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw accuracy and ECE, or the metric that is named, one above the other."""
    metrics = ["accuracy", "ece"] if metric is None else [metric]
    series = by_vertices(groups)
    counts = {group.runs[0].vertices for group in groups}
    if len(counts) < 2:
        raise RunError(f"all runs have m = {counts.pop()}: expected runs with different numbers of vertices")
    with style.styled():
        drawing = style.blank(style.COLUMN, 0.6 + 1.5 * len(metrics))
        panels = drawing.subplots(len(metrics), 1, sharex=True, squeeze=False)[:, 0]
        looks = style.looks([members[0] for members in series.values()])
        for axes, name in zip(panels, metrics, strict=True):
            for members, look, shift in zip(series.values(), looks, shifts(series.values()), strict=True):
                _bars(axes, members, look, shift, name, split)
            axes.set_ylabel(style.measure(name).label)
        panels[0].set_title(style.heading(groups, split))
        panels[-1].set_xlabel("number of vertices m")
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        handles = [
            style.key(look, _word(label, members)) for (label, members), look in zip(series.items(), looks, strict=True)
        ]
        style.legend(drawing, handles, columns=2, title=style.seeds(groups))
    return drawing


def by_vertices(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return groups that differ in the number of vertices only, in its order."""
    series: dict[str, list[Group]] = {}
    for group in sorted(groups, key=lambda group: group.runs[0].vertices):
        series.setdefault(re.sub(r" \(m = \d+\)", "", group.label), []).append(group)
    return series


def shifts(series: Iterable[Sequence[Group]]) -> list[float]:
    """Return by how much each series is moved aside, so that the error bars of one m lie beside each other."""
    single = [members[0].runs[0].single for members in series]
    places = iter(np.linspace(-1, 1, max(1, single.count(False))) * 0.05 * (single.count(False) - 1))
    return [0.0 if alone else float(next(places)) for alone in single]


def _bars(axes: Axes, members: Sequence[Group], look: Look, shift: float, metric: str, split: str) -> None:
    """Draw the midpoints of a series with error bars; a single network is a level to compare with, too."""
    scale = style.measure(metric).scale
    curves = [group.center(metric, split) for group in members]
    if members[0].runs[0].single:
        style.level(axes, curves[0], scale, look)
    places = [group.runs[0].vertices + shift for group in members]
    means, stds = _column(curves, "mean") * scale, _column(curves, "std") * scale
    line = "none" if members[0].runs[0].single else look.line
    axes.errorbar(places, means, stds, color=look.colour, linestyle=line, capsize=2, elinewidth=0.9, **look.mark)


def _column(curves: Sequence[Curve], name: str) -> Array:
    return np.array([getattr(curve, name)[0] for curve in curves])


def _word(label: str, members: Sequence[Group]) -> str:
    return label if members[0].runs[0].single else f"{label}: midpoint"
