"""What shifted data do to a metric: by corruption as bars, and along lines and curves."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation import conditions, curves
from subspaces.evaluation.comparing import SPLIT, Group, check_split, of_seeds, place, standard_for
from subspaces.evaluation.conditions import Condition, averaged_over, best_along, changed, on, shifted_rows
from subspaces.evaluation.curves import described, usual
from subspaces.evaluation.rows import Description
from subspaces.evaluation.statistics import spread
from subspaces.reports.figures import along, style
from subspaces.reports.figures.style import Look
from subspaces.text import nearest

ROOM = 0.8  # of the place of a corruption, for its bars
GAP = 0.6  # between groups of corruptions, in such places
ACROSS = 4  # panels in a row
GREY = "#555555"
STAR: dict[str, Any] = {"marker": "*", "markersize": 7, "markeredgewidth": 0.7, "linestyle": "none"}
STAR["markerfacecolor"] = "white"  # chosen on the very images that it is reported on
BEST = "best network at any α, chosen on these very images"
Changes = list[dict[tuple[int, ...], float]]
"""A relative change for each seed, in every place of the axis."""


@dataclass(frozen=True)
class Series:
    """The bars of one answer, and the stars of a line's best points."""

    label: str
    look: Look
    together: bool  # an ensemble
    changes: Changes
    best: Changes


def shift(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw the relative change of every answer, minus that of standard training where each has one."""
    shown = described(metric or usual(groups)[0].name, groups)
    found = needed(groups, shown.name, split)
    mean = [averaged_over(found)]
    places = [[each] for each in found] + (mean if len(mean[0]) > 1 else [])
    standards = references(groups)
    looks = dict(zip([group.label for group in groups], style.looks(groups), strict=True))
    drawn = [group for group in groups if not standards or group.label in standards]
    series = [
        one for group in drawn for one in _series(group, looks[group.label], places, shown, standards.get(group.label))
    ]
    drawing = style.blank(style.PAGE, 3.0)
    axes = drawing.add_subplot()
    _bars(axes, series, _where(places))
    _named(axes, places)
    minus = " minus that of\nstandard training (points)" if standards else " (%)"
    axes.set_ylabel(f"relative change of\n{shown.label}{minus}")
    drawing.suptitle(_heading(groups, found, split), fontsize=style.FONT)
    handles: list[Any] = [Patch(**_paint(one), label=one.label) for one in series]
    if any(one.best for one in series):
        handles.append(Line2D([], [], color="#222222", label=BEST, **STAR))
    style.legend(
        drawing, handles, columns=2, title="\n".join(filter(None, (style.seeds(groups), _zero(shown, standards))))
    )
    return drawing


def needed(groups: Sequence[Group], metric: str, split: str) -> list[Condition]:
    """Return the shifted data that all groups were measured on by a metric, or say why there is none to show."""
    if split != SPLIT:
        raise ArgumentError(f"split={split!r}: shifted data stand in place of the {SPLIT} split, leave it out")
    found = conditions.conditions(groups)
    for group in groups:
        rows = shifted_rows(group)
        if group.interval:
            rows = rows[rows["kind"] == "point"]  # of a line or curve the points are shown
        for one, seed in zip(group.evaluations, group.seeds, strict=True):
            names = set(of_seeds(rows, (seed,))["data"])
            if not names or not {each.name for each in found} <= names:
                run = f"run `subspaces evaluate {place(one)} --corruptions all`"
                hint = "pass corruptions= to evaluate" if place(one) == one.name else run
                raise UserError(f"{place(one)} was not measured on shifted data: {hint}")
        check_split(group, SPLIT)
    if not found:
        raise UserError("the runs were measured on different shifted data: evaluate them alike")
    every = [shifted_rows(group).dropna(axis="columns", how="all") for group in groups]
    known = [each.name for each in groups[0].evaluations[0].metrics if all(each.name in rows for rows in every)]
    if metric not in known:
        raise ArgumentError(f"metric={metric!r} was not measured on shifted data: {nearest(metric, known)}")
    return found


def _heading(groups: Sequence[Group], found: Sequence[Condition], split: str) -> str:
    return " · ".join(part for part in (style.heading(groups, split), conditions.severities(found)) if part)


def references(groups: Sequence[Group]) -> dict[str, Group]:
    """Return the standard training that each of the other groups is compared with; none where one has none."""
    found = {group.label: standard_for(group, groups) for group in groups}
    known = {label: standard for label, standard in found.items() if standard is not None}
    told = {*known, *(standard.label for standard in known.values())}
    return known if told == set(found) else {}


def _zero(shown: Description, standards: dict[str, Group]) -> str:
    """Say what it means to be above or below 0."""
    if not standards or shown.goal is not None:
        return ""
    side, word = ("below", "rise") if shown.lower_is_better else ("above", "drop")
    return f"{side} 0: a smaller {word} than with standard training"


def _series(
    group: Group, look: Look, places: Sequence[list[Condition]], shown: Description, standard: Group | None
) -> list[Series]:
    """Return the bars of a group: of its own answer, and of its first ensemble."""
    every = [{one.before.words: one for one in changed(group, each)} for each in places]
    answers = [one.before for name, one in every[0].items() if all(name in each for each in every)]
    if not answers:
        raise UserError(f"{group.label} has no answer on shifted data: evaluate it again")
    zero: Changes | None = None
    if standard is not None:
        zero = [changed(standard, each)[0].relative(shown.name) for each in places]
    headed = [*answers[:1], *[one for one in answers[1:] if one.networks > 1][:1]]
    walked = group.interval and shown.goal is None
    best = [best_along(group, each, shown) for each in places] if walked else []
    return [
        Series(
            answer.label,
            look,
            answer.networks > 1,
            _minus(group, [each[answer.words].relative(shown.name) for each in every], zero),
            _minus(group, best, zero) if best and answer is answers[0] else [],
        )
        for answer in headed
    ]


def _minus(group: Group, changes: Changes, zero: Changes | None) -> Changes:
    """Return the differences to standard training with the same seeds."""
    if zero is None:
        return changes
    found = [{s: one[s] - other[s] for s in one if s in other} for one, other in zip(changes, zero, strict=True)]
    if not all(found):
        raise UserError(
            f"{group.label} and standard training have no seed in common: expected runs with the same seeds"
        )
    return found


def _where(places: Sequence[list[Condition]]) -> list[float]:
    """Return the middle of each place, with room between groups of corruptions and before the mean of all."""
    kinds = [_kind(place) for place in places]
    apart = [0.0, *(1 + GAP * (one != other) for one, other in itertools.pairwise(kinds))]
    return list(itertools.accumulate(apart))


def _kind(place: Sequence[Condition]) -> str:
    return place[0].group if len(place) == 1 else ""


def _bars(axes: Axes, series: Sequence[Series], where: Sequence[float]) -> None:
    """Draw the means over seeds beside each other, with error bars where there are several."""
    width = ROOM / len(series)
    for number, one in enumerate(series):
        at = np.array(where) + (number - (len(series) - 1) / 2) * width
        values = [spread([100 * change for change in changes.values()]) for changes in one.changes]
        axes.bar(at, [each.mean for each in values], width, **_paint(one))
        if values[0].std is not None:
            around = [each.std or 0.0 for each in values]
            axes.errorbar(at, [each.mean for each in values], around, fmt="none", ecolor="#222222", elinewidth=0.7)
        if one.best:
            best = [spread([100 * change for change in changes.values()]).mean for changes in one.best]
            axes.plot(at, best, color="#222222", zorder=3, **STAR)
    axes.axhline(0, color="#222222", linewidth=0.6)


def _paint(one: Series) -> dict[str, Any]:
    """Return how a bar is filled: an ensemble is hatched."""
    if one.together:
        return {"facecolor": "white", "edgecolor": one.look.colour, "hatch": "//////", "linewidth": 0.6}
    return {"facecolor": one.look.colour, "edgecolor": one.look.colour, "linewidth": 0.6}


def _named(axes: Axes, places: Sequence[list[Condition]]) -> None:
    """Write what each place is below it, and above it which group it belongs to where there are several."""
    where, kinds = _where(places), [_kind(place) for place in places]
    names = [place[0].label if len(place) == 1 else f"mean of {len(place)}" for place in places]
    axes.set_xticks(where, names, rotation=45, ha="right", rotation_mode="anchor")
    axes.grid(False, axis="x")
    axes.tick_params(axis="x", length=0)
    axes.margins(x=0.01)
    known = [kind for kind in dict.fromkeys(kinds) if kind]
    for kind in known if len(known) > 1 else []:
        inside = [x for x, each in zip(where, kinds, strict=True) if each == kind]
        axes.text(float(np.mean(inside)), 1.01, kind, ha="center", va="bottom", transform=axes.get_xaxis_transform())


# Along lines and curves


def shift_along(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw a panel for the test examples and for every corruption, with the best point of each line marked."""
    shown = described(metric or usual(groups)[0].name, groups)
    found = needed(groups, shown.name, split)
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
        _best(axes, seen, looks, shown)
        axes.set(title=name, xlabel="α" if at + across >= len(panels) else "")
        axes.set_ylabel("" if at % across else shown.axis)
        axes.xaxis.set_major_locator(MaxNLocator(3, steps=[5, 10]))
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    star = Line2D([], [], color=GREY, label="best network", **STAR)
    along.legends(drawing, methods, [*lines, star], groups, 3, _heading(groups, found, split))
    return drawing


def _best(axes: Axes, groups: Sequence[Group], looks: Sequence[Look], shown: Description) -> None:
    """Mark where the mean over seeds of a line is best."""
    for group, look in zip(groups, looks, strict=True):
        if group.interval:
            curve = curves.along(group, shown.name)
            at = int(np.argmax([shown.merit(float(mean)) for mean in curve.mean]))
            axes.plot(curve.grid[at], shown.scale * curve.mean[at], color=look.colour, zorder=3, **STAR)
