"""The midpoint, or the ensemble of a method's members, against the number of them."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subspaces.errors import UserError
from subspaces.evaluation.comparing import Group
from subspaces.evaluation.curves import described, level, usual
from subspaces.evaluation.group_answers import first
from subspaces.reports.figures import style

GAP = 0.1  # between two series with the same m, on the axis of m
SPREAD = 0.15  # the farthest that one of many is moved away from its m


def vertices(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw the two metrics that are told first, or the one that is named, one above the other."""
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
    for axes, shown in zip(panels, metrics, strict=True):
        for members, look, where in zip(methods.values(), looks, _places(methods.values()), strict=True):
            curves = [level(first(group, split), shown.name) for group in members]
            if members[0].single:  # also a level to compare with
                style.level(axes, curves[0], shown.scale, look, marked=False)
            means = [shown.scale * float(one.mean[0]) for one in curves]
            stds = [shown.scale * float(one.std[0]) for one in curves]
            line = "none" if members[0].single else look.line
            axes.errorbar(where, means, stds, color=look.colour, linestyle=line, capsize=2, elinewidth=0.9, **look.mark)
        axes.set_ylabel(shown.axis)
    panels[0].set_title(style.heading(groups, split))
    together = any(first(group, split).networks > 1 for group in groups)
    panels[-1].set_xlabel(f"number of vertices{' or members' if together else ''} m")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    named = zip(methods.items(), looks, strict=True)
    handles = [style.key(look, first(members[0], split).brief(label)) for (label, members), look in named]
    style.legend(drawing, handles, columns=2, title=style.seeds(groups))
    return drawing


def _places(methods: Iterable[Sequence[Group]]) -> list[list[float]]:
    """Return where each method is drawn: at its m, those with the same m beside each other and all near it."""
    counts = [[group.vertices for group in members] for members in methods]
    shared = Counter(m for each in counts for m in each)
    free = {m: iter(np.linspace(-1, 1, n) * min(GAP / 2 * (n - 1), SPREAD)) for m, n in shared.items()}
    return [[m + float(next(free[m])) for m in each] for each in counts]
