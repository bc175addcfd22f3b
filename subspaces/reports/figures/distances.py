"""How far apart the vertices of a subspace are: over the epochs, and at the end in what they predict and in weights."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subspaces.errors import ArgumentError
from subspaces.evaluation.statistics import spread
from subspaces.experiments.methods import METHODS
from subspaces.experiments.training.runs import RunError
from subspaces.reports.figures import style
from subspaces.reports.measures import measure
from subspaces.reports.reading import Array, Group, Reading
from subspaces.text import nearest

LOGGED = ("l2", "cos2")


def diversity(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw a panel of bars for each measure, a bar for each group."""
    families = [group for group in groups if not group.runs[0].single]
    rows = (row for group in families for row in group.runs[0].record.rows)
    predicted = next((list(row.diversity) for row in rows if row.diversity), [])
    if metric is not None and metric not in (*LOGGED, *predicted):
        raise ArgumentError(f"metric={metric!r}: {nearest(metric, (*LOGGED, *predicted))}")
    if not families:
        raise RunError("only single networks among the runs: expected a line, a curve or a simplex")
    weights = [
        name for name in LOGGED if all(_weights(run, name) is not None for each in families for run in each.runs)
    ]
    metrics = [*predicted[:1], *weights] if metric is None else [metric]
    width = style.COLUMN if len(metrics) == 1 else style.PAGE
    several = len(families) > 1  # one needs no name beside its bar
    names = [style.wrapped(group.label, width / 3) if several else "" for group in families]
    lines = max(name.count("\n") + 1 for name in names)
    drawing = style.blank(width, 1.1 + max(0.24, style.LINE * lines + 0.06) * max(len(families), 3))
    panels = drawing.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, metrics, strict=True):
        _bars(axes, families, name, split)
    panels[0].set_yticks(range(len(families)), names)
    room = max(0.5, 1.5 - len(families) / 2)  # bars of a few methods are not as high as the panel
    panels[0].set_ylim(len(families) - 1 + room, -room)
    label = "" if several else f"{families[0].label} · "
    drawing.suptitle(f"{label}{style.heading(groups, split)}\n{style.seeds(families)}".rstrip(), fontsize=style.FONT)
    return drawing


def _bars(axes: Axes, groups: Sequence[Group], metric: str, split: str) -> None:
    shown = measure(metric, groups)
    for place, group in enumerate(groups):
        values = spread((shown.scale * measured(group, metric, split)).tolist())
        axes.barh(place, values.mean, 0.62, color=_hue(group))
        if values.std is not None:
            axes.errorbar(values.mean, place, xerr=values.std, color="#222222", capsize=2, linewidth=0.9)
        end = (values.mean + (values.std or 0), place)
        axes.annotate(f"{values.mean:.3g}", end, (4, 0), textcoords="offset points", va="center_baseline")
    axes.set_xlabel(f"{shown.axis}\n{between(groups, metric)}")
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.25)
    axes.set_xlim(left=0)


def _hue(group: Group) -> str:
    """Return the colour of a method, the first of which is for the second: a single network has no vertices."""
    place = len(METHODS) if group.recipe is None else list(METHODS).index(group.recipe.method)
    return style.COLOURS[(place - 1) % len(style.COLOURS)]


def between(groups: Sequence[Group], metric: str) -> str:
    """Return in words between what a measure is taken."""
    if metric in LOGGED:
        return "weights of vertices"
    words = {True: "ends", False: "vertices"}
    return "predictions of " + " or ".join(sorted({words[group.runs[0].interval] for group in groups}))


def measured(group: Group, metric: str, split: str) -> Array:
    """Return a measure of difference for each seed: of weights from the result, of predictions from the record."""
    found = []
    for run in group.runs:
        value = _weights(run, metric) if metric in LOGGED else _predictions(run, metric, split)
        if value is None:
            what = "weights" if metric in LOGGED else f"{'ends' if run.interval else 'vertices'} on {split!r}"
            hint = "" if run.run is None else f": run `subspaces evaluate {run.folder}`"
            raise RunError(f"{run.folder} has no {metric} of its {what}{hint}")
        found.append(value)
    return np.array(found)


def _weights(run: Reading, metric: str) -> float | None:
    if run.run is None:
        return run.record.statistics.get(metric)
    if run.run.finished:  # the vertices of the family, which need not be what the log is of
        return float(run.run.result[metric])
    if not run.log:
        raise RunError(f"{run.folder} has no log.jsonl: train it first")
    return float(run.log[-1][metric])


def _predictions(run: Reading, metric: str, split: str) -> float | None:
    """Return a measure of the ends of a line or curve, which need not be the first of its points, or of vertices."""
    rows = [row for row in run.rows(split) if row.kind == "ensemble" and row.role == "vertex"]
    row = run.pairs(split).get(0.0) if run.interval else next(iter(rows), None)
    return None if row is None or row.diversity is None else row.diversity.get(metric)


# Over the epochs


def training(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw L2 distance and cos² one above the other, and a column of the log below where one is named."""
    columns = list(LOGGED) if any(not group.runs[0].trained_alone for group in groups) else []
    if metric is not None and metric not in columns:
        columns.append(metric)
    _check_logs(groups, columns)
    drawing = style.blank(style.COLUMN, 0.6 + 1.35 * len(columns))
    panels = drawing.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
    looks = style.looks(groups)
    for axes, column in zip(panels, columns, strict=True):
        quantity = measure(column)
        for group, look in zip(groups, looks, strict=True):
            curve = group.logged(column)
            if len(curve.grid) and not (group.runs[0].trained_alone and column in LOGGED):
                style.band(axes, curve, quantity.scale, look, every=max(1, len(curve.grid) // 6))
        axes.set_ylabel(quantity.axis)
        if column in LOGGED:
            axes.set_ylim(0, 1.06 * axes.dataLim.y1 or 1)
    panels[0].set_title(style.heading(groups))
    panels[-1].set_xlabel("epoch")
    panels[-1].xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=[1, 2, 5, 10]))
    shown = [
        pair
        for pair in zip(groups, looks, strict=True)
        if columns[2:] or not columns[1:] or not pair[0].runs[0].trained_alone
    ]
    handles = [style.key(look, group.label) for group, look in shown]
    style.legend(drawing, handles, columns=2, title=style.seeds([group for group, _ in shown]))
    return drawing


def _check_logs(groups: Sequence[Group], columns: Sequence[str]) -> None:
    """Refuse runs without a log, a column that no log has, and single networks alone."""
    for run in (run for group in groups for run in group.runs):
        if not run.log:
            raise RunError(f"{run.folder} has no log.jsonl: train it first")
    known = dict.fromkeys(name for group in groups for row in group.runs[0].log for name in row if name != "epoch")
    for column in columns:
        if column not in known:
            raise ArgumentError(f"metric={column!r} is no column of the logs: {nearest(column, known)}")
    if not columns:
        raise RunError("only single networks among the runs: they have no distance between vertices; name a --metric")
