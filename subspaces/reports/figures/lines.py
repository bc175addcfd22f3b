"""Figures of lines: along subspaces, over the number of vertices and over the epochs."""

import re
from collections.abc import Sequence
from dataclasses import replace

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from subspaces.errors import UserError
from subspaces.evaluation import curves
from subspaces.evaluation.comparing import Group, first, place
from subspaces.evaluation.curves import described, on, severities, usual
from subspaces.reports import series
from subspaces.reports.figures import style
from subspaces.reports.figures.style import BEST, BEST_LABEL, GREY, MARKERS, Look
from subspaces.reports.series import LOGGED

ACROSS = 4  # panels in a row
GAP = 0.05  # between two methods with the same number of vertices
Keys = tuple[list[Line2D], list[Line2D]]


# Along subspaces


def along(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw points dashed and ensembles solid, for all groups in one panel."""
    metric = metric or usual(groups)[0].name
    check_intervals(groups)
    drawing = style.blank(style.COLUMN, 2.5)
    axes = drawing.add_subplot()
    keys = panel(axes, groups, style.looks(groups), metric, split)
    axes.set_title(style.heading(groups, split))
    axes.set_ylabel(described(metric, groups).axis)
    legends(drawing, *keys, groups, columns=2)
    return drawing


def check_intervals(groups: Sequence[Group]) -> None:
    """Refuse groups of which none has an alpha."""
    if not any(group.interval for group in groups):
        raise UserError("no line or curve among the runs: there is no α to walk along")


def legends(
    drawing: Figure,
    methods: Sequence[Line2D],
    lines: Sequence[Line2D],
    groups: Sequence[Group],
    columns: int,
    heading: str = "",
) -> None:
    """Put above the axes what is shown and what lines and stars are, and below them which colour is which method."""
    style.legend(drawing, lines, columns, heading, place="outside upper center")
    style.legend(drawing, methods, columns, title=style.seeds(groups))


def panel(axes: Axes, groups: Sequence[Group], looks: Sequence[Look], metric: str, split: str) -> Keys:
    """Draw groups into one panel, and return what its legends explain: methods, and what the lines are."""
    handles = []
    for one in series.along(groups, described(metric, groups), split):
        group, look = groups[one.group], looks[one.group]
        if one.kind == "points":
            handles.append(style.key(look, group.label, "none"))
        if one.answer is None:
            style.band(axes, one.curve, 1.0, look, style.DASHED if one.kind == "points" else "-", every=4)
            continue
        flat = look if group.single else replace(look, line=style.DOTS[1])
        baseline = style.level(axes, one.curve, 1.0, flat)
        baseline.set_label(style.wrapped(group.label))
        plain = group.single and look.marker == "*"  # as it is drawn
        handles.append(baseline if plain else style.key(flat, one.answer.brief(group.label)))
    axes.set_xlabel("α")
    axes.margins(x=0.02)
    return handles, [
        Line2D([], [], color=GREY, linestyle=style.DASHED, label="network at α"),
        Line2D([], [], color=GREY, label="ensemble of α and 1−α"),
    ]


def betas(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw a panel for every method, with colours from dark to light as the strength beta of the penalty grows."""
    metric = metric or usual(groups)[0].name
    families: dict[str, dict[float, Group]] = {}  # by beta, and by what they are called without it
    for group in groups:
        beta = None if group.training is None else group.training.recipe.get("beta")
        if group.interval and beta is not None:
            rest = [part for part in group.label.split(", ") if not part.startswith("β = ")]
            families.setdefault(", ".join(rest) or group.label, {})[float(beta)] = group
    if not any(len(members) > 1 for members in families.values()):
        raise UserError("no line or curve with several β among the runs: expected two or more that differ in β alone")
    singles = [group for group in groups if group.single]
    strengths = sorted({beta for members in families.values() for beta in members})
    looks = dict(zip(strengths, _shades(len(strengths)), strict=True))
    alone = len(families) == 1
    drawing = style.blank(style.COLUMN if alone else style.PAGE, 2.35)
    panels = drawing.subplots(1, len(families), sharey=True, squeeze=False)[0]
    methods: dict[str, Line2D] = {}
    for axes, (name, members) in zip(panels, families.items(), strict=True):
        ordered = sorted(members)
        named = [*(replace(members[beta], label=f"β = {beta:g}") for beta in ordered), *singles]
        shown = [*(looks[beta] for beta in ordered), *style.looks(singles)]
        handles, lines = panel(axes, named, shown, metric, split)
        methods |= {str(handle.get_label()): handle for handle in handles}
        axes.set_title(f"{name} · {style.heading(groups, split)}" if alone else name)
    panels[0].set_ylabel(described(metric, groups).axis)
    heading = "" if alone else style.heading(groups, split)
    ordered_keys = [methods.pop(f"β = {beta:g}") for beta in strengths]
    legends(drawing, [*ordered_keys, *methods.values()], lines, groups, 2 if alone else 4, heading)
    return drawing


def _shades(count: int) -> list[Look]:
    colours = [to_hex(mpl.colormaps["viridis"](0.8 * k / max(count - 1, 1))) for k in range(count)]
    return [Look(each, MARKERS[k % len(MARKERS)], shade=style.shading(count)) for k, each in enumerate(colours)]


def shift_along(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw a panel for the test examples and for every corruption, with the best point of each line marked."""
    shown = described(metric or usual(groups)[0].name, groups)
    found = series.shifted(groups, shown.name, split)
    check_intervals(groups)
    panels = {"unchanged": [replace(group, rows=group.frame) for group in groups]}
    panels |= {each.label: [on(group, [each]) for group in groups] for each in found}
    down = -(-len(panels) // ACROSS)
    across = -(-len(panels) // down)
    drawing = style.blank(style.PAGE * max(across, 2) / ACROSS, 0.2 + 1.6 * down)
    grid = drawing.subplots(down, across, squeeze=False).ravel()
    looks = style.looks(groups)
    for at, (axes, (name, seen)) in enumerate(zip(grid, panels.items(), strict=False)):
        methods, lines = panel(axes, seen, looks, shown.name, split)
        for group, look in zip(seen, looks, strict=True):
            if group.interval:  # where the mean over seeds is best
                curve = curves.along(group, shown.name)
                best = int(np.argmax([shown.merit(float(mean)) for mean in curve.mean]))
                axes.plot(curve.grid[best], shown.scale * curve.mean[best], color=look.colour, zorder=3, **BEST)
        axes.set(title=name, xlabel="α" if at + across >= len(panels) else "", ylabel="" if at % across else shown.axis)
        axes.xaxis.set_major_locator(MaxNLocator(3, steps=[5, 10]))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    star = Line2D([], [], color=GREY, label=BEST_LABEL, **BEST)
    legends(drawing, methods, [*lines, star], groups, 3, style.heading(groups, split, severities(found)))
    return drawing


# Over the number of vertices and the epochs


def vertices(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw the two metrics that come first, or the one that is named, one above the other."""
    metrics = usual(groups) if metric is None else [described(metric, groups)]
    methods: dict[str, list[Group]] = {}  # groups that differ in the number of vertices only, in its order
    for group in sorted(groups, key=lambda group: group.vertices):
        methods.setdefault(re.sub(r" \(m = \d+\)", "", group.label), []).append(group)
    counts = {group.vertices for group in groups}
    if len(counts) < 2:
        raise UserError(f"all runs have m = {counts.pop()}: expected runs with different numbers of vertices")
    drawing = style.blank(style.COLUMN, 0.6 + 1.5 * len(metrics))
    panels = drawing.subplots(len(metrics), 1, sharex=True, squeeze=False)[:, 0]
    looks = style.looks([members[0] for members in methods.values()])
    answers = {name: [first(group, split) for group in members] for name, members in methods.items()}
    for axes, shown in zip(panels, metrics, strict=True):
        for at, (members, look, own) in enumerate(zip(methods.values(), looks, answers.values(), strict=True)):
            levels = [curves.level(each, shown.name) for each in own]
            if members[0].single:  # also a level to compare with
                style.level(axes, levels[0], shown.scale, look, marked=False)
            means = [shown.scale * float(one.mean[0]) for one in levels]
            stds = [shown.scale * float(one.std[0]) for one in levels]
            where = [group.vertices + GAP * (at - (len(methods) - 1) / 2) for group in members]
            line = "none" if members[0].single else look.line
            axes.errorbar(where, means, stds, color=look.colour, linestyle=line, capsize=2, elinewidth=0.9, **look.mark)
        axes.set_ylabel(shown.axis)
    panels[0].set_title(style.heading(groups, split))
    together = any(each.networks > 1 for own in answers.values() for each in own)
    panels[-1].set_xlabel(f"number of vertices{' or members' if together else ''} m")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    named = zip(answers.items(), looks, strict=True)
    handles = [style.key(look, own[0].brief(label)) for (label, own), look in named]
    style.legend(drawing, handles, columns=2, title=style.seeds(groups))
    return drawing


def training(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw L2 distance and cos² between vertices one above the other."""
    looks = style.looks(groups)
    shown = [pair for pair in zip(groups, looks, strict=True) if not pair[0].trained_alone]
    for one in (one for group in groups for one in group.evaluations):
        if one.training is None or not one.training.log:
            raise UserError(f"{place(one)} has no log.jsonl: train it first")
    if not shown:
        raise UserError("only single networks among the runs: they have no distance between vertices")
    drawing = style.blank(style.COLUMN, 0.6 + 1.35 * len(LOGGED))
    panels = drawing.subplots(len(LOGGED), 1, sharex=True, squeeze=False)[:, 0]
    for axes, column in zip(panels, map(described, LOGGED), strict=True):
        for line in series.logged(groups, column):
            style.band(axes, line.curve, 1.0, looks[line.group], every=max(1, len(line.curve.grid) // 6))
        axes.set_ylabel(column.axis)
        axes.set_ylim(0, 1.06 * axes.dataLim.y1 or 1)
    panels[0].set_title(style.heading(groups))
    panels[-1].set_xlabel("epoch")
    panels[-1].xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=[1, 2, 5, 10]))
    handles = [style.key(look, group.label) for group, look in shown]
    style.legend(drawing, handles, columns=2, title=style.seeds([group for group, _ in shown]))
    return drawing
