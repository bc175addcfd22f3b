"""What shifted data do to a metric: by corruption as bars, and along lines and curves."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation import curves
from subspaces.evaluation.comparing import Group, check_split, of_seeds, place, standard_for
from subspaces.evaluation.curves import (
    Condition,
    averaged_over,
    best_along,
    changed,
    described,
    on,
    shifted_rows,
    usual,
)
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.rows import SPLIT
from subspaces.evaluation.statistics import Spread, spread
from subspaces.reports.figures import along, style
from subspaces.text import nearest

ROOM = 0.8  # of the place of a corruption, for its bars
GAP = 0.6  # between groups of corruptions, in such places
ACROSS = 4  # panels in a row
STAR: dict[str, Any] = {**along.STAR, "markerfacecolor": "white"}  # chosen on the very images that it is reported on
BEST = "best network, chosen on these images"
BLACK = "#222222"
Places = Sequence[list[Condition]]
"""What each place of the axis is a mean over."""
Changes = list[dict[tuple[int, ...], float]]
"""A relative change for each seed, in every place of the axis."""


class Bars(NamedTuple):
    """The bars of one answer in percent, and the stars of a line's best points."""

    paint: dict[str, Any]
    changes: list[Spread]
    best: list[Spread]


def shift(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw the relative change of every answer, minus that of standard training where each has one."""
    shown = described(metric or usual(groups)[0].name, groups)
    found = _needed(groups, shown.name, split)
    mean = averaged_over(found)
    places = [*([each] for each in found), *([mean] if len(mean) > 1 else [])]
    standards = _references(groups)
    every = [
        one
        for group, look in zip(groups, style.looks(groups), strict=True)
        if not standards or group.label in standards
        for one in _bars_of(group, look, places, shown, standards.get(group.label))
    ]
    drawing = style.blank(style.PAGE, 3.0)
    axes = drawing.add_subplot()
    where, width = _named(axes, places), ROOM / len(every)
    for number, one in enumerate(every):
        at, heights = where + (number - (len(every) - 1) / 2) * width, [each.mean for each in one.changes]
        axes.bar(at, heights, width, linewidth=0.6, **one.paint)
        if one.changes[0].std is not None:
            errors = [each.std or 0.0 for each in one.changes]
            axes.errorbar(at, heights, errors, fmt="none", ecolor=BLACK, elinewidth=0.7)
        if one.best:
            axes.plot(at, [each.mean for each in one.best], color=BLACK, zorder=3, **STAR)
    axes.axhline(0, color=BLACK, linewidth=0.6)
    minus = " minus that of\nstandard training (points)" if standards else " (%)"
    axes.set_ylabel(f"relative change of\n{shown.label}{minus}")
    drawing.suptitle(_heading(groups, found, split), fontsize=style.FONT)
    handles: list[Any] = [Patch(linewidth=0.6, **one.paint) for one in every]
    if any(one.best for one in every):
        handles.append(Line2D([], [], color=BLACK, label=BEST, **STAR))
    note = style.seeds(groups)
    if standards and shown.goal is None:
        side, word = ("below", "rise") if shown.lower_is_better else ("above", "drop")
        note += f"\n{side} 0: a smaller {word} than with standard training"
    style.legend(drawing, handles, columns=2, title=note)
    return drawing


def _needed(groups: Sequence[Group], metric: str, split: str) -> list[Condition]:
    """Return the shifted data that all groups were measured on by a metric, or say why there is none to show."""
    if split != SPLIT:
        raise ArgumentError(f"split={split!r}: shifted data stand in place of the {SPLIT} split, leave it out")
    for group in groups:
        rows = shifted_rows(group)
        rows = rows[rows["kind"] == "point"] if group.interval else rows  # of a line or curve the points are shown
        for one, seed in zip(group.evaluations, group.seeds, strict=True):
            if not len(of_seeds(rows, (seed,))):
                raise UserError(f"{place(one)} was not measured on shifted data: evaluate it with corruptions")
        check_split(group, SPLIT)
    found = curves.conditions(groups)
    if not found:
        raise UserError("the runs were measured on different shifted data: evaluate them alike")
    every = [shifted_rows(group).dropna(axis="columns", how="all") for group in groups]
    known = [each.name for each in groups[0].evaluations[0].metrics if all(each.name in rows for rows in every)]
    if metric not in known:
        raise ArgumentError(f"metric={metric!r} was not measured on shifted data: {nearest(metric, known)}")
    return found


def _heading(groups: Sequence[Group], found: Sequence[Condition], split: str) -> str:
    return " · ".join(part for part in (style.heading(groups, split), curves.severities(found)) if part)


def _references(groups: Sequence[Group]) -> dict[str, Group]:
    """Return the standard training that each of the other groups is compared with; none where one has none."""
    found = {group.label: standard_for(group, groups) for group in groups}
    known = {label: standard for label, standard in found.items() if standard is not None}
    return known if {*known, *(standard.label for standard in known.values())} == set(found) else {}


def _bars_of(group: Group, look: style.Look, places: Places, shown: Metric, standard: Group | None) -> list[Bars]:
    """Return the bars of a group: of its own answer, and of its first ensemble."""
    every = [{one.before.words: one for one in changed(group, each)} for each in places]
    answers = [one.before for name, one in every[0].items() if all(name in each for each in every)]
    if not answers:
        raise UserError(f"{group.label} has no answer on shifted data: evaluate it again")
    zero = None if standard is None else [changed(standard, each)[0].relative(shown.name) for each in places]
    walked = group.interval and shown.goal is None
    best = _minus(group, [best_along(group, each, shown) for each in places], zero) if walked else []
    made = []
    for answer in [*answers[:1], *[one for one in answers[1:] if one.networks > 1][:1]]:
        changes = _minus(group, [each[answer.words].relative(shown.name) for each in every], zero)
        paint = {"facecolor": look.colour, "edgecolor": look.colour, "label": style.wrapped(answer.label)}
        paint |= {"facecolor": "white", "hatch": "//////"} if answer.networks > 1 else {}
        made.append(Bars(paint, changes, best if answer is answers[0] else []))
    return made


def _minus(group: Group, changes: Changes, zero: Changes | None) -> list[Spread]:
    if zero is not None:
        changes = [{s: a[s] - b[s] for s in a if s in b} for a, b in zip(changes, zero, strict=True)]
    if not all(changes):
        raise UserError(f"{group.label} and standard training share no seed: expected runs with the same seeds")
    return [spread([100 * change for change in each.values()]) for each in changes]


def _named(axes: Axes, places: Places) -> Any:
    kinds = [place[0].group if len(place) == 1 else "" for place in places]
    where = np.cumsum([0.0, *(1 + GAP * (one != other) for one, other in itertools.pairwise(kinds))])
    names = [place[0].label if len(place) == 1 else f"mean of {len(place)}" for place in places]
    axes.set_xticks(where, names, rotation=45, ha="right", rotation_mode="anchor")
    axes.grid(False, axis="x")
    axes.tick_params(axis="x", length=0)
    axes.margins(x=0.01)
    known = list(dict.fromkeys(filter(None, kinds)))
    for kind in known if len(known) > 1 else []:
        middle = float(np.mean([x for x, each in zip(where, kinds, strict=True) if each == kind]))
        axes.text(middle, 1.01, kind, ha="center", va="bottom", transform=axes.get_xaxis_transform())
    return where


def shift_along(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw a panel for the test examples and for every corruption, with the best point of each line marked."""
    shown = described(metric or usual(groups)[0].name, groups)
    found = _needed(groups, shown.name, split)
    along.check_intervals(groups)
    panels = {"unchanged": [replace(group, rows=group.frame) for group in groups]}
    panels |= {each.label: [on(group, [each]) for group in groups] for each in found}
    down = -(-len(panels) // ACROSS)
    across = -(-len(panels) // down)
    drawing = style.blank(style.PAGE * max(across, 2) / ACROSS, 0.2 + 1.6 * down)
    grid = drawing.subplots(down, across, squeeze=False)
    looks = style.looks(groups)
    for at, (axes, (name, seen)) in enumerate(zip(grid.flat, panels.items(), strict=False)):
        methods, lines = along.panel(axes, seen, looks, shown.name, split)
        for group, look in zip(seen, looks, strict=True):
            if group.interval:  # where the mean over seeds is best
                curve = curves.along(group, shown.name)
                best = int(np.argmax([shown.merit(float(mean)) for mean in curve.mean]))
                axes.plot(curve.grid[best], shown.scale * curve.mean[best], color=look.colour, zorder=3, **STAR)
        axes.set(title=name, xlabel="α" if at + across >= len(panels) else "")
        axes.set_ylabel("" if at % across else shown.axis)
        axes.xaxis.set_major_locator(MaxNLocator(3, steps=[5, 10]))
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    star = Line2D([], [], color=along.GREY, label=BEST, **STAR)
    along.legends(drawing, methods, [*lines, star], groups, 3, _heading(groups, found, split))
    return drawing
