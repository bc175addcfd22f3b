"""What confidences are worth: reliability diagrams, and risk against coverage."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from subspaces.errors import UserError
from subspaces.evaluation import curves, statistics
from subspaces.evaluation.comparing import Group, check_split
from subspaces.evaluation.curves import Array
from subspaces.evaluation.group_answers import GroupAnswer, headed
from subspaces.reports.figures import style

ACROSS = 4  # diagrams in a row
BAR, GAP = "#56B4E9", "#D55E00"


@dataclass(frozen=True)
class Bins:
    """Predictions of all seeds by confidence; NaN in empty bins."""

    share: Array  # of all predictions
    confidence: Array
    accuracy: Array


def reliability(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw a diagram for each answer, and below it how often a confidence occurs."""
    shown = confident(groups, split, "reliability")
    down = -(-len(shown) // ACROSS)
    across = -(-len(shown) // down)
    taller = style.LINE * max(title(answer).count("\n") - 2 for answer in shown)  # than titles of three lines
    drawing = style.blank(style.PAGE * max(across, 2) / ACROSS, 0.35 + (2.35 + taller) * down)
    panels = drawing.subplots(2 * down, across, squeeze=False, sharey="row", height_ratios=[3, 1] * down)
    for k, answer in enumerate(shown):
        row, column = divmod(k, across)
        _diagram(panels[2 * row, column], panels[2 * row + 1, column], answer, split)
    for k in range(len(shown), down * across):
        for axes in panels[2 * (k // across) : 2 * (k // across) + 2, k % across]:
            axes.set_axis_off()
    for row in range(down):
        panels[2 * row, 0].set_ylabel("accuracy (%)")
        panels[2 * row + 1, 0].set_ylabel("share (%)")
    drawing.suptitle(style.heading(groups, split), fontsize=style.FONT)
    handles = [
        Patch(facecolor=BAR, edgecolor="white", label="accuracy"),
        Patch(facecolor="none", edgecolor=GAP, hatch="/////", label="confidence minus accuracy"),
        Line2D([], [], color="black", linestyle=style.DASHED, linewidth=0.8, label="right as often as confident"),
    ]
    many = any(len(group.evaluations) > 1 for group in groups)
    note = f"bars: the images of all seeds together\nECE: {style.seeds(groups)}" if many else style.seeds(groups)
    style.legend(drawing, handles, columns=3, title=note)
    return drawing


def confident(groups: Sequence[Group], split: str, part: str) -> list[GroupAnswer]:
    """Return what stands for each group, if it has reliability or risk over coverage, which not every task has."""
    found = headed(groups, split)
    if not found:
        check_split(groups[0], split)
    for answer in found:
        if any(getattr(row, part) is None for row in answer.curves(split)):
            what = part.replace("_", " over ")
            raise UserError(f"{answer.label} has no {what}: expected a classification of examples")
    return found


def pooled(answer: GroupAnswer, split: str) -> Bins:
    """Return the bins of all seeds together, weighted by how many predictions each has."""
    tables = [row.reliability for row in answer.curves(split) if row.reliability is not None]
    count = np.array([table.count for table in tables], np.float64)  # [seeds, bins]
    confidence = np.array([table.confidence for table in tables], np.float64)  # None becomes NaN
    accuracy = np.array([table.accuracy for table in tables], np.float64)
    total = count.sum(0)
    weights = np.divide(count, total, out=np.zeros_like(count), where=total > 0)
    means = [np.where(total > 0, np.nansum(weights * values, 0), np.nan) for values in (confidence, accuracy)]
    return Bins(total / total.sum(), means[0], means[1])


def title(answer: GroupAnswer) -> str:
    """Return what predicts, in lines that fit above a diagram, and its ECE."""
    parts = answer.label.rpartition(": ")
    names = [f"{parts[0]}:", parts[2]] if parts[0] else [parts[2]]
    width = style.PAGE / ACROSS - 0.3
    error = statistics.shown(answer.spread("ece"), 100, 1)
    return "\n".join([*(style.wrapped(name, width) for name in names), f"ECE {error} %"])


def _diagram(axes: Axes, below: Axes, answer: GroupAnswer, split: str) -> None:
    bins = pooled(answer, split)
    edges = np.linspace(0, 100, len(bins.share) + 1)
    width, centers = edges[1], (edges[:-1] + edges[1:]) / 2
    accuracy, confidence = 100 * np.nan_to_num(bins.accuracy), 100 * np.nan_to_num(bins.confidence)
    axes.bar(centers, accuracy, width, color=BAR, edgecolor="white", linewidth=0.4)
    gap: dict[str, Any] = {"facecolor": "none", "edgecolor": GAP, "hatch": "/////", "linewidth": 0.5}
    axes.bar(centers, confidence - accuracy, width, bottom=accuracy, **gap)
    axes.plot([0, 100], [0, 100], color="black", linestyle=style.DASHED, linewidth=0.8)
    below.bar(centers, 100 * bins.share, width, color="#6e6e6e", edgecolor="white", linewidth=0.4)
    axes.set_title(title(answer))
    axes.set(ylim=(0, 100), yticks=(0, 25, 50, 75, 100))
    axes.tick_params(labelbottom=False)
    below.set_xlabel("confidence (%)")
    for each in (axes, below):
        each.set(xlim=(0, 100), xticks=(0, 50, 100))
        each.grid(False, axis="x")


# Risk against coverage: what is won by leaving out the least confident predictions


def selective(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw single networks dashed and ensembles solid, with AURC in the legend."""
    drawing = style.blank(style.COLUMN, 2.5)
    axes = drawing.add_subplot()
    looks = dict(zip([group.label for group in groups], style.looks(groups), strict=True))
    handles = []
    for answer in confident(groups, split, "risk_coverage"):
        look = looks[answer.group.label]
        line = look.line if answer.group.single else "-" if answer.networks > 1 else style.DASHED
        curve = curves.risk(answer.curves(split))
        drawn = style.band(axes, replace(curve, grid=100 * curve.grid), 100, look, line, every=8)
        area = statistics.shown(answer.spread("aurc"), 100).replace(" ± ", "\u00a0±\u00a0")
        drawn.set_label(f"{answer.label} ({area})")
        drawn.set_clip_on(False)  # markers on the axes are whole
        handles.append(drawn)
    axes.set(xlabel="most confident answers kept (%)", ylabel="error among them (%)", xlim=(0, 100))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_title(style.heading(groups, split))
    style.legend(
        drawing, handles, columns=1, title=f"AURC, the area below a line, in %\n{style.seeds(groups)}".rstrip()
    )
    return drawing
