"""A metric along lines and curves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from subspaces.reports.answers import answered, first
from subspaces.reports.figures import style
from subspaces.reports.figures.style import Look
from subspaces.reports.measures import measure, usual
from subspaces.reports.reading import Curve, Group
from subspaces.training.runs import RunError


def figure(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw points dashed and ensembles solid, for all groups in one panel."""
    metric = metric or usual(groups)[0].name
    if not any(group.runs[0].interval for group in groups):
        raise RunError(f"no line or curve among the runs ({style.listed(groups)}): there is no α to walk along")
    drawing = style.blank(style.COLUMN, 2.5)
    axes = drawing.add_subplot()
    keys = panel(axes, groups, style.looks(groups), metric, split)
    axes.set_title(style.heading(groups, split))
    axes.set_ylabel(measure(metric, groups).axis)
    legends(drawing, keys, groups, columns=2)
    return drawing


@dataclass(frozen=True)
class Keys:
    """What the legends explain: which colour is which method, and what the lines and stars are."""

    methods: list[Line2D]
    lines: list[Line2D]


def legends(drawing: Figure, keys: Keys, groups: Sequence[Group], columns: int) -> None:
    """Put what lines are above the axes, and what colours are below them."""
    style.legend(drawing, keys.lines, columns, place="outside upper center")
    style.legend(drawing, keys.methods, columns, title=caption(groups, keys.lines))


def panel(axes: Axes, groups: Sequence[Group], looks: Sequence[Look], metric: str, split: str) -> Keys:
    """Draw groups into one panel, and return what its legends explain."""
    scale = measure(metric, groups).scale
    handles = []
    for group, look in zip(groups, looks, strict=True):
        if group.runs[0].interval:
            style.band(axes, group.along(metric, split), scale, look, style.DASHED, every=4)
            pairs = mirrored(group.along(metric, split, ensemble=True))
            if len(pairs.grid):
                style.band(axes, pairs, scale, look, "-", every=4)
            handles.append(style.key(look, group.label, "none"))
        else:
            single = group.runs[0].single
            flat = look if single else replace(look, line=style.DOTS[1])
            baseline = style.level(axes, first(group, split).curve(metric), scale, flat)
            baseline.set_label(group.label)
            plain = single and look.marker == "*"  # as it is drawn
            handles.append(baseline if plain else style.key(flat, answered(group, group.label, split)))
    lines = [
        Line2D([], [], color="#555555", linestyle=style.DASHED, label="network at α"),
        Line2D([], [], color="#555555", label="ensemble of α and 1−α"),
        *chosen(axes, groups, looks, metric, split),
    ]
    axes.set_xlabel("α")
    axes.margins(x=0.02)
    return Keys(handles, lines)


def mirrored(pairs: Curve) -> Curve:
    """Return ensembles of alpha and 1 - alpha over the whole range: they are the same at both."""
    above = pairs.grid < 0.5
    grid = np.concatenate([pairs.grid, 1 - pairs.grid[above][::-1]])
    return Curve(grid, np.concatenate([pairs.values, pairs.values[:, above][:, ::-1]], axis=1))


def chosen(axes: Axes, groups: Sequence[Group], looks: Sequence[Look], metric: str, split: str) -> list[Line2D]:
    """Mark what was chosen by the metric, where a group is one run; a choice on the split that is shown is hollow.

    With several seeds every run has a choice of its own, and none belongs to the mean that is drawn.
    """
    handles: dict[str, Line2D] = {}
    scale = measure(metric, groups).scale
    for group, look in zip(groups, looks, strict=True):
        choices = group.runs[0].record.choices if len(group.runs) == 1 and group.runs[0].interval else []
        for choice in choices:
            if (
                choice.what not in ("point", "pair")
                or choice.by != metric
                or metric not in choice.reported.get(split, {})
            ):
                continue
            biased = choice.chosen_on == split
            face = "white" if biased else look.colour
            where = min(choice.value) if isinstance(choice.value, list) else choice.value
            words = f"best on the {choice.chosen_on} split"
            star: dict[str, Any] = {"marker": "*", "markersize": 7, "markeredgewidth": 0.7, "linestyle": "none"}
            axes.plot(where, choice.reported[split][metric] * scale, color=look.colour, markerfacecolor=face, **star)
            grey = "white" if biased else "#555555"
            handles.setdefault(words, Line2D([], [], color="#555555", markerfacecolor=grey, label=words, **star))
    return list(handles.values())


def caption(groups: Sequence[Group], handles: Sequence[Line2D]) -> str:
    """Return what bands are, and what a hollow star is where there is one."""
    hollow = any(handle.get_marker() == "*" and handle.get_markerfacecolor() == "white" for handle in handles)
    return style.seeds(groups) + ("\nhollow star: chosen on the split shown here" if hollow else "")
