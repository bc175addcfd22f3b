"""Figures of bars: reliability, and what shifted data do to a metric."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from subspaces.errors import UserError
from subspaces.evaluation import statistics
from subspaces.evaluation.comparing import Group, GroupAnswer, check_split, headed, standard_for
from subspaces.evaluation.curves import Condition, averaged_over, best_along, changed, described, severities, usual
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.statistics import Spread, spread
from subspaces.reports import series
from subspaces.reports.figures import style
from subspaces.reports.figures.style import BEST, BEST_LABEL, DARK

ACROSS = 4  # diagrams in a row
BAR, SHARE = "#56B4E9", "#6e6e6e"
OVER: dict[str, Any] = {"facecolor": "none", "edgecolor": "#D55E00", "hatch": "/////"}
DIAGONAL: dict[str, Any] = {"color": "black", "linestyle": style.DASHED, "linewidth": 0.8}
ROOM, GAP = 0.8, 0.6  # of the place of a corruption for its bars, and between groups of corruptions in such places
Series = tuple[dict[str, Any], list[Spread], list[Spread]]
"""How bars are painted, their heights in percent, and the stars of a line's best points."""


# Reliability


def reliability(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw a diagram for each answer, and below it how often a confidence occurs."""
    shown = headed(groups, split)
    if not shown:
        check_split(groups[0], split)
    for answer in shown:
        if any(row.reliability is None for row in answer.curves(split)):
            raise UserError(f"{answer.label} has no reliability: expected a classification of examples")
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
    for row, label in itertools.product(range(down), ("accuracy", "share")):
        panels[2 * row + (label == "share"), 0].set_ylabel(f"{label} (%)")
    drawing.suptitle(style.heading(groups, split), fontsize=style.FONT)
    handles = [
        Patch(facecolor=BAR, edgecolor="white", label="accuracy"),
        Patch(**OVER, label="confidence minus accuracy"),
        Line2D([], [], **DIAGONAL, label="right as often as confident"),
    ]
    many = any(len(group.evaluations) > 1 for group in groups)
    note = f"bars: the images of all seeds together\nECE: {style.seeds(groups)}" if many else style.seeds(groups)
    style.legend(drawing, handles, columns=3, title=note)
    return drawing


def _title(answer: GroupAnswer) -> str:
    method, _, words = answer.label.rpartition(": ")
    names = [style.wrapped(name, 23) for name in ([f"{method}:", words] if method else [words])]
    return "\n".join([*names, f"ECE {statistics.shown(answer.spread('ece'), 100, 1)} %"])


def _diagram(axes: Axes, below: Axes, answer: GroupAnswer, split: str) -> None:
    """Draw accuracy, confidence and share in every bin, of the predictions of all seeds together; 0 if empty."""
    tables = [row.reliability for row in answer.curves(split) if row.reliability is not None]
    count = np.array([table.count for table in tables], np.float64)  # [seeds, bins]
    total = count.sum(0)
    every = (np.array([getattr(table, name) for table in tables], np.float64) for name in ("confidence", "accuracy"))
    confidence, accuracy = (100 * np.nansum(count * values, 0) / np.maximum(total, 1) for values in every)  # None: NaN
    edges = np.linspace(0, 100, len(total) + 1)
    width, centers = edges[1], (edges[:-1] + edges[1:]) / 2
    axes.bar(centers, accuracy, width, color=BAR, edgecolor="white", linewidth=0.4)
    axes.bar(centers, confidence - accuracy, width, bottom=accuracy, linewidth=0.5, **OVER)
    axes.plot([0, 100], [0, 100], **DIAGONAL)
    below.bar(centers, 100 * (total / max(total.sum(), 1)), width, color=SHARE, edgecolor="white", linewidth=0.4)
    axes.set(ylim=(0, 100), yticks=(0, 25, 50, 75, 100))
    axes.tick_params(labelbottom=False)
    below.set_xlabel("confidence (%)")
    for each in (axes, below):
        each.set(xlim=(0, 100), xticks=(0, 50, 100))
        each.grid(False, axis="x")


# Shifted data


def shift(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw the relative change of every answer, minus that of standard training where each has one."""
    shown = described(metric or usual(groups)[0].name, groups)
    found = series.shifted(groups, shown.name, split)
    mean = averaged_over(found)
    places = [*([each] for each in found), *([mean] if len(mean) > 1 else [])]  # what each place is a mean over
    own = {group.label: standard_for(group, groups) for group in groups}
    standards = {label: standard for label, standard in own.items() if standard is not None}
    if {*standards, *(standard.label for standard in standards.values())} != set(own):
        standards = {}  # as one has none
    every = [
        one
        for group, look in zip(groups, style.looks(groups), strict=True)
        if not standards or group.label in standards
        for one in _bars_of(group, look, places, shown, standards.get(group.label))
    ]
    drawing = style.blank(style.PAGE, 3.0)
    axes = drawing.add_subplot()
    where, width = _named(axes, places), ROOM / len(every)
    for number, (paint, changes, best) in enumerate(every):
        at, heights = where + (number - (len(every) - 1) / 2) * width, [each.mean for each in changes]
        axes.bar(at, heights, width, linewidth=0.6, **paint)
        if changes[0].std is not None:
            errors = [each.std or 0.0 for each in changes]
            axes.errorbar(at, heights, errors, fmt="none", ecolor=DARK, elinewidth=0.7)
        if best:
            axes.plot(at, [each.mean for each in best], color=DARK, zorder=3, **BEST)
    axes.axhline(0, color=DARK, linewidth=0.6)
    minus = " minus that of\nstandard training (points)" if standards else " (%)"
    axes.set_ylabel(f"relative change of\n{shown.label}{minus}")
    drawing.suptitle(style.heading(groups, split, severities(found)), fontsize=style.FONT)
    handles: list[Any] = [Patch(linewidth=0.6, **paint) for paint, _, _ in every]
    if any(best for _, _, best in every):
        handles.append(Line2D([], [], color=DARK, label=BEST_LABEL, **BEST))
    note = style.seeds(groups)
    if standards and shown.goal is None:
        side, word = ("below", "rise") if shown.lower_is_better else ("above", "drop")
        note += f"\n{side} 0: a smaller {word} than with standard training"
    style.legend(drawing, handles, columns=2, title=note)
    return drawing


def _bars_of(
    group: Group, look: style.Look, places: Sequence[list[Condition]], shown: Metric, standard: Group | None
) -> list[Series]:
    """Return the bars of a group: of its own answer, and of its first ensemble."""
    every = [{one.before.words: one for one in changed(group, each)} for each in places]
    answers = [one.before for name, one in every[0].items() if all(name in each for each in every)]
    if not answers:
        raise UserError(f"{group.label} has no answer on shifted data: evaluate it again")
    zero = None if standard is None else [changed(standard, each)[0].relative(shown.name) for each in places]

    def minus(changes: list[dict[tuple[int, ...], float]]) -> list[Spread]:
        """Return changes by seed in percent, in every place, minus those of standard training."""
        if zero is not None:
            changes = [{s: a[s] - b[s] for s in a if s in b} for a, b in zip(changes, zero, strict=True)]
        if not all(changes):
            raise UserError(f"{group.label} and standard training share no seed: expected runs with the same seeds")
        return [spread([100 * change for change in each.values()]) for each in changes]

    walked = group.interval and shown.goal is None
    best = minus([best_along(group, each, shown) for each in places]) if walked else []
    made = []
    for answer in [*answers[:1], *[one for one in answers[1:] if one.networks > 1][:1]]:
        paint = {"facecolor": look.colour, "edgecolor": look.colour, "label": style.wrapped(answer.label)}
        paint |= {"facecolor": "white", "hatch": "//////"} if answer.networks > 1 else {}
        changes = minus([each[answer.words].relative(shown.name) for each in every])
        made.append((paint, changes, best if answer is answers[0] else []))
    return made


def _named(axes: Axes, places: Sequence[list[Condition]]) -> Any:
    """Name the places of an axis and the groups of corruptions above, and return where the places are."""
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
