"""A metric along lines and curves, also for several strengths of the penalty."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from subspaces.errors import UserError
from subspaces.evaluation import curves
from subspaces.evaluation.comparing import Group
from subspaces.evaluation.curves import described, usual
from subspaces.evaluation.group_answers import first
from subspaces.reports.figures import style
from subspaces.reports.figures.style import MARKERS, Look

Keys = tuple[list[Line2D], list[Line2D]]


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
        raise UserError(f"no line or curve among the runs ({style.listed(groups)}): there is no α to walk along")


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
    style.legend(drawing, methods, columns, title=caption(groups, lines))


def panel(axes: Axes, groups: Sequence[Group], looks: Sequence[Look], metric: str, split: str) -> Keys:
    """Draw groups into one panel, and return what its legends explain: methods, and what the lines and stars are."""
    scale = described(metric, groups).scale
    handles = []
    for group, look in zip(groups, looks, strict=True):
        if group.interval:
            style.band(axes, curves.along(group, metric, split), scale, look, style.DASHED, every=4)
            pairs = curves.mirrored(curves.along(group, metric, split, average=None))
            if len(pairs.grid):
                style.band(axes, pairs, scale, look, "-", every=4)
            handles.append(style.key(look, group.label, "none"))
        else:
            answer = first(group, split)
            flat = look if group.single else replace(look, line=style.DOTS[1])
            baseline = style.level(axes, curves.level(answer, metric), scale, flat)
            baseline.set_label(group.label)
            plain = group.single and look.marker == "*"  # as it is drawn
            handles.append(baseline if plain else style.key(flat, answer.brief(group.label)))
    lines = [
        Line2D([], [], color="#555555", linestyle=style.DASHED, label="network at α"),
        Line2D([], [], color="#555555", label="ensemble of α and 1−α"),
        *chosen(axes, groups, looks, metric, split),
    ]
    axes.set_xlabel("α")
    axes.margins(x=0.02)
    return handles, lines


def chosen(axes: Axes, groups: Sequence[Group], looks: Sequence[Look], metric: str, split: str) -> list[Line2D]:
    """Mark what was chosen by the metric, where a group is one run; a choice on the split that is shown is hollow.

    With several seeds every run has a choice of its own, and none belongs to the mean that is drawn.
    """
    handles: dict[str, Line2D] = {}
    scale = described(metric, groups).scale
    for group, look in zip(groups, looks, strict=True):
        alone = len(group.evaluations) == 1 and group.interval and group.rows is None
        choices = group.evaluations[0].choices if alone else []
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


# Several strengths of the penalty


def betas(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw a panel for every method, with colours from dark to light as beta grows."""
    metric = metric or usual(groups)[0].name
    families = by_method([group for group in groups if group.interval and not math.isnan(beta_of(group))])
    if not any(len(members) > 1 for members in families.values()):
        raise UserError(
            f"no line or curve with several β among the runs ({style.listed(groups)}): "
            "expected two or more that differ in β alone"
        )
    singles = [group for group in groups if group.single]
    strengths = sorted({beta_of(group) for members in families.values() for group in members})
    looks = dict(zip(strengths, shades(len(strengths)), strict=True))
    width = style.COLUMN if len(families) == 1 else style.PAGE
    drawing = style.blank(width, 2.35)
    panels = drawing.subplots(1, len(families), sharey=True, squeeze=False)[0]
    methods, lines = dict[str, Line2D](), dict[str, Line2D]()
    for axes, (name, members) in zip(panels, families.items(), strict=True):
        named = [*(replace(group, label=f"β = {beta_of(group):g}") for group in members), *singles]
        shown = [*(looks[beta_of(group)] for group in members), *style.looks(singles)]
        for found, handles in zip((methods, lines), panel(axes, named, shown, metric, split), strict=True):
            found |= {str(handle.get_label()): handle for handle in handles}
        axes.set_title(name if len(families) > 1 else f"{name} · {style.heading(groups, split)}")
    panels[0].set_ylabel(described(metric, groups).axis)
    heading = style.heading(groups, split) if len(families) > 1 else ""
    ordered = [*(methods.pop(f"β = {beta:g}") for beta in strengths), *methods.values()]
    legends(drawing, ordered, list(lines.values()), groups, 2 if len(families) == 1 else 4, heading)
    return drawing


def beta_of(group: Group) -> float:
    """Return the strength of the penalty; NaN where there is none."""
    found = None if group.training is None else group.training.recipe.get("beta")
    return math.nan if found is None else float(found)


def by_method(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return groups that differ in beta only, in order of beta, by what they are called without it."""
    families: dict[str, list[Group]] = {}
    for group in sorted(groups, key=beta_of):
        rest = [part for part in group.label.split(", ") if not part.startswith("β = ")]
        families.setdefault(", ".join(rest) or group.label, []).append(group)
    return families


def shades(count: int) -> list[Look]:
    """Return looks of a sequential colour map that is even in grey too, short of its lightest part."""
    colours = mpl.colormaps["viridis"]
    places = [0.8 * k / max(count - 1, 1) for k in range(count)]
    return [
        Look(to_hex(colours(place)), MARKERS[k % len(MARKERS)], shade=style.shading(count))
        for k, place in enumerate(places)
    ]
