"""How far apart the vertices of a subspace are: over the epochs, and at the end in what they predict and in weights."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subspaces.errors import UserError
from subspaces.evaluation.comparing import Group, check_split, place
from subspaces.evaluation.curves import Array, described
from subspaces.evaluation.statistics import spread
from subspaces.reports import series
from subspaces.reports.figures import style
from subspaces.reports.series import LOGGED


def diversity(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw a panel of bars for each measure, a bar for each group."""
    families = [group for group in groups if not group.single]
    if not families:
        raise UserError("only single networks among the runs: expected a line, a curve or a simplex")
    rows = (row for group in families for one in group.evaluations for row in one.rows if row.diversity)
    predicted = next((name for row in rows for name in row.diversity or ()), None)
    bars = {} if predicted is None else {predicted: [predictions(group, predicted, split) for group in families]}
    measured = {name: [weights(group, name) for group in families] for name in LOGGED}
    bars |= {name: found for name, found in measured.items() if not np.isnan(np.concatenate(found)).any()}
    several = len(families) > 1  # one needs no name beside its bar
    width, characters = (style.COLUMN, 20) if len(bars) == 1 else (style.PAGE, 38)
    names = [style.wrapped(group.label, characters) if several else "" for group in families]
    lines = max(name.count("\n") + 1 for name in names)
    drawing = style.blank(width, 1.1 + max(0.24, 0.135 * lines + 0.06) * max(len(families), 3))
    panels = drawing.subplots(1, len(bars), sharey=True, squeeze=False)[0]
    words = " or ".join(sorted({_ends(group) for group in families}))
    for axes, (name, found) in zip(panels, bars.items(), strict=True):
        shown = described(name, groups)
        _bars(axes, families, [shown.scale * each for each in found])
        axes.set_xlabel(f"{shown.axis}\n{'weights of vertices' if name in LOGGED else f'predictions of {words}'}")
    panels[0].set_yticks(range(len(families)), names)
    room = max(0.5, 1.5 - len(families) / 2)  # bars of a few methods are not as high as the panel
    panels[0].set_ylim(len(families) - 1 + room, -room)
    label = "" if several else f"{families[0].label} · "
    drawing.suptitle(f"{label}{style.heading(groups, split)}\n{style.seeds(families)}".rstrip(), fontsize=style.FONT)
    return drawing


def _bars(axes: Axes, groups: Sequence[Group], values: Sequence[Array]) -> None:
    for at, (group, each) in enumerate(zip(groups, values, strict=True)):
        order = 1 if group.training is None else int(group.training.order[0])  # of the methods; 0 is one network
        found = spread(each.tolist())
        axes.barh(at, found.mean, 0.62, color=style.COLOURS[(order - 1) % len(style.COLOURS)])
        if found.std is not None:
            axes.errorbar(found.mean, at, xerr=found.std, color="#222222", capsize=2, linewidth=0.9)
        end = (found.mean + (found.std or 0), at)
        axes.annotate(f"{found.mean:.3g}", end, (4, 0), textcoords="offset points", va="center_baseline")
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.25)
    axes.set_xlim(left=0)


def _ends(group: Group) -> str:
    return "ends" if group.interval else "vertices"


def weights(group: Group, name: str) -> Array:
    """Return how far apart the vertices of each seed are, which need not be what the log is of; NaN if not known."""
    logs = [one.training.log[-1:] if one.training is not None else [] for one in group.evaluations]
    last = [log[0].get(name) if log else None for log in logs]
    found = [one.statistics.get(name, each) for one, each in zip(group.evaluations, last, strict=True)]
    return np.array(found, float)  # None becomes NaN


def predictions(group: Group, name: str, split: str) -> Array:
    """Return how differently the ends of a line or curve, or all vertices, of each seed predict."""
    check_split(group, split)
    frame = group.frame[(group.frame["data"] == split) & (group.frame["kind"] == "ensemble")]
    frame = frame[(frame["role"] == "along") & (frame["alpha"] == 0) if group.interval else frame["role"] == "vertex"]
    frame = frame.drop_duplicates("seeds")
    found = dict(zip(frame["seeds"], frame[name], strict=True)) if name in frame else {}
    for one, seed in zip(group.evaluations, group.seeds, strict=True):
        if np.isnan(found.get((seed,), np.nan)):
            where = f"{_ends(group)} on {split!r}"
            raise UserError(f"{place(one)} has no {name} of its {where}: run `subspaces evaluate {place(one)}`")
    return np.array([found[seed,] for seed in group.seeds])


def training(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw L2 distance and cos² one above the other."""
    looks = style.looks(groups)
    shown = [pair for pair in zip(groups, looks, strict=True) if not pair[0].trained_alone]
    for one in (one for group in groups for one in group.evaluations):
        if one.training is None or not one.training.log:
            raise UserError(f"{place(one)} has no log.jsonl: train it first")
    if not shown:
        raise UserError("only single networks among the runs: they have no distance between vertices")
    drawing = style.blank(style.COLUMN, 0.6 + 1.35 * len(LOGGED))
    panels = drawing.subplots(len(LOGGED), 1, sharex=True, squeeze=False)[:, 0]
    for axes, column in zip(panels, LOGGED, strict=True):
        for line in series.logged(groups, described(column)):
            style.band(axes, line.curve, 1.0, looks[line.group], every=max(1, len(line.curve.grid) // 6))
        axes.set_ylabel(described(column).axis)
        axes.set_ylim(0, 1.06 * axes.dataLim.y1 or 1)
    panels[0].set_title(style.heading(groups))
    panels[-1].set_xlabel("epoch")
    panels[-1].xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=[1, 2, 5, 10]))
    handles = [style.key(look, group.label) for group, look in shown]
    style.legend(drawing, handles, columns=2, title=style.seeds([group for group, _ in shown]))
    return drawing
