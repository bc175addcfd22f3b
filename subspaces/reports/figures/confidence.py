"""What confidences are worth: reliability diagrams."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from subspaces.errors import UserError
from subspaces.evaluation import statistics
from subspaces.evaluation.comparing import Group, GroupAnswer, check_split, headed
from subspaces.evaluation.curves import Array
from subspaces.reports.figures import style

ACROSS = 4  # diagrams in a row
BAR = "#56B4E9"
GAP: dict[str, Any] = {"facecolor": "none", "edgecolor": "#D55E00", "hatch": "/////"}
DIAGONAL: dict[str, Any] = {"color": "black", "linestyle": style.DASHED, "linewidth": 0.8}


def reliability(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw a diagram for each answer, and below it how often a confidence occurs."""
    shown = _confident(groups, split)
    titles = [_title(answer) for answer in shown]
    down = -(-len(shown) // ACROSS)
    across = -(-len(shown) // down)
    lines = max(title.count("\n") for title in titles)
    drawing = style.blank(style.PAGE * max(across, 2) / ACROSS, 0.35 + (2.08 + 0.135 * lines) * down)
    panels = drawing.subplots(2 * down, across, squeeze=False, sharey="row", height_ratios=[3, 1] * down)
    above, below = panels[::2].ravel(), panels[1::2].ravel()
    for axes, share, answer, title in zip(above, below, shown, titles, strict=False):
        _diagram(axes, share, answer, split)
        axes.set_title(title)
    for axes in (*above[len(shown) :], *below[len(shown) :]):
        axes.set_axis_off()
    for row in range(down):
        panels[2 * row, 0].set_ylabel("accuracy (%)")
        panels[2 * row + 1, 0].set_ylabel("share (%)")
    drawing.suptitle(style.heading(groups, split), fontsize=style.FONT)
    handles = [
        Patch(facecolor=BAR, edgecolor="white", label="accuracy"),
        Patch(**GAP, label="confidence minus accuracy"),
        Line2D([], [], **DIAGONAL, label="right as often as confident"),
    ]
    many = any(len(group.evaluations) > 1 for group in groups)
    note = f"bars: the images of all seeds together\nECE: {style.seeds(groups)}" if many else style.seeds(groups)
    style.legend(drawing, handles, columns=3, title=note)
    return drawing


def _confident(groups: Sequence[Group], split: str) -> list[GroupAnswer]:
    """Return what stands for each group, if it has reliability, which not every task has."""
    found = headed(groups, split)
    if not found:
        check_split(groups[0], split)
    for answer in found:
        if any(row.reliability is None for row in answer.curves(split)):
            raise UserError(f"{answer.label} has no reliability: expected a classification")
    return found


def _pooled(answer: GroupAnswer, split: str) -> tuple[Array, Array, Array]:
    """Return share, confidence and accuracy in every bin, of the predictions of all seeds together; 0 if empty."""
    tables = [row.reliability for row in answer.curves(split) if row.reliability is not None]
    count = np.array([table.count for table in tables], np.float64)  # [seeds, bins]
    confidence = np.array([table.confidence for table in tables], np.float64)  # None becomes NaN
    accuracy = np.array([table.accuracy for table in tables], np.float64)
    total = count.sum(0)
    means = [np.nansum(count * values, 0) / np.maximum(total, 1) for values in (confidence, accuracy)]
    return total / total.sum(), means[0], means[1]


def _title(answer: GroupAnswer) -> str:
    method, _, words = answer.label.rpartition(": ")
    names = [style.wrapped(name, 23) for name in ([f"{method}:", words] if method else [words])]
    return "\n".join([*names, f"ECE {statistics.shown(answer.spread('ece'), 100, 1)} %"])


def _diagram(axes: Axes, below: Axes, answer: GroupAnswer, split: str) -> None:
    share, confidence, accuracy = (100 * each for each in _pooled(answer, split))
    edges = np.linspace(0, 100, len(share) + 1)
    width, centers = edges[1], (edges[:-1] + edges[1:]) / 2
    axes.bar(centers, accuracy, width, color=BAR, edgecolor="white", linewidth=0.4)
    axes.bar(centers, confidence - accuracy, width, bottom=accuracy, linewidth=0.5, **GAP)
    axes.plot([0, 100], [0, 100], **DIAGONAL)
    below.bar(centers, share, width, color="#6e6e6e", edgecolor="white", linewidth=0.4)
    axes.set(ylim=(0, 100), yticks=(0, 25, 50, 75, 100))
    axes.tick_params(labelbottom=False)
    below.set_xlabel("confidence (%)")
    for each in (axes, below):
        each.set(xlim=(0, 100), xticks=(0, 50, 100))
        each.grid(False, axis="x")
