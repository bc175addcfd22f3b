"""How far apart the vertices of a subspace are: over the epochs, and at the end in what they predict and in weights."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation.comparing import Group, check_split, place
from subspaces.evaluation.curves import Array, described
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.statistics import spread
from subspaces.reports import series
from subspaces.reports.figures import style
from subspaces.reports.series import LOGGED
from subspaces.text import nearest


def diversity(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw a panel of bars for each measure, a bar for each group."""
    families = [group for group in groups if not group.single]
    rows = (row for group in families for row in group.evaluations[0].rows)
    predicted = next((list(row.diversity) for row in rows if row.diversity), [])
    if metric is not None and metric not in (*LOGGED, *predicted):
        raise ArgumentError(f"metric={metric!r}: {nearest(metric, (*LOGGED, *predicted))}")
    if not families:
        raise UserError("only single networks among the runs: expected a line, a curve or a simplex")
    every = [one for group in families for one in group.evaluations]
    weights = [name for name in LOGGED if all(_of_weights(one, name) is not None for one in every)]
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
    shown = described(metric, groups)
    for at, group in enumerate(groups):
        order = 1 if group.training is None else int(group.training.order[0])  # of the methods; 0 is one network
        values = spread((shown.scale * measured(group, metric, split)).tolist())
        axes.barh(at, values.mean, 0.62, color=style.COLOURS[(order - 1) % len(style.COLOURS)])
        if values.std is not None:
            axes.errorbar(values.mean, at, xerr=values.std, color="#222222", capsize=2, linewidth=0.9)
        end = (values.mean + (values.std or 0), at)
        axes.annotate(f"{values.mean:.3g}", end, (4, 0), textcoords="offset points", va="center_baseline")
    words = " or ".join(sorted({"ends" if group.interval else "vertices" for group in groups}))
    axes.set_xlabel(f"{shown.axis}\n{'weights of vertices' if metric in LOGGED else f'predictions of {words}'}")
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.25)
    axes.set_xlim(left=0)


def measured(group: Group, metric: str, split: str) -> Array:
    """Return a measure of difference for each seed: of the weights, or of what the vertices predict."""
    if metric not in LOGGED:
        check_split(group, split)
    found = []
    for one in group.evaluations:
        value = _of_weights(one, metric) if metric in LOGGED else _of_predictions(group, one, metric, split)
        if value is None:
            what = "weights" if metric in LOGGED else f"{'ends' if group.interval else 'vertices'} on {split!r}"
            hint = "" if one.training is None else f": run `subspaces evaluate {place(one)}`"
            raise UserError(f"{place(one)} has no {metric} of its {what}{hint}")
        found.append(value)
    return np.array(found)


def _of_weights(one: Evaluation, metric: str) -> float | None:
    """Return how far apart the vertices of the family are, which need not be what the log is of."""
    last = one.training.log[-1:] if one.training is not None else []
    found = one.statistics.get(metric, last[0].get(metric) if last else None)
    return None if found is None else float(found)


def _of_predictions(group: Group, one: Evaluation, metric: str, split: str) -> float | None:
    """Return a measure of the ends of a line or curve, which need not be the first of its points, or of vertices."""
    for row in one.rows:
        ends = row.role == "along" and {0.0, 1.0} <= set(row.alphas) if group.interval else row.role == "vertex"
        if row.split == split and row.kind == "ensemble" and ends:
            return None if row.diversity is None else row.diversity.get(metric)
    return None


def training(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw L2 distance and cos² one above the other, and a column of the log below where one is named."""
    columns = list(LOGGED) if any(not group.trained_alone for group in groups) else []
    if metric is not None and metric not in columns:
        columns.append(metric)
    _check_logs(groups, columns)
    drawing = style.blank(style.COLUMN, 0.6 + 1.35 * len(columns))
    panels = drawing.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
    looks = style.looks(groups)
    for axes, column in zip(panels, columns, strict=True):
        for one in series.logged(groups, described(column)):
            style.band(axes, one.curve, 1.0, looks[one.group], every=max(1, len(one.curve.grid) // 6))
        axes.set_ylabel(described(column).axis)
        if column in LOGGED:
            axes.set_ylim(0, 1.06 * axes.dataLim.y1 or 1)
    panels[0].set_title(style.heading(groups))
    panels[-1].set_xlabel("epoch")
    panels[-1].xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=[1, 2, 5, 10]))
    alone = not set(columns) <= set(LOGGED)  # single networks are drawn, too
    shown = [pair for pair in zip(groups, looks, strict=True) if alone or not pair[0].trained_alone]
    handles = [style.key(look, group.label) for group, look in shown]
    style.legend(drawing, handles, columns=2, title=style.seeds([group for group, _ in shown]))
    return drawing


def _check_logs(groups: Sequence[Group], columns: Sequence[str]) -> None:
    """Refuse runs without a log, a column that no log has, and single networks alone."""
    for one in (one for group in groups for one in group.evaluations):
        if one.training is None or not one.training.log:
            raise UserError(f"{place(one)} has no log.jsonl: train it first")
    logs = [group.training.log for group in groups if group.training is not None]
    known = dict.fromkeys(name for log in logs for row in log for name in row if name != "epoch")
    for column in columns:
        if column not in known:
            raise ArgumentError(f"metric={column!r} is no column of the logs: {nearest(column, known)}")
    if not columns:
        raise UserError("only single networks among the runs: they have no distance between vertices; name a --metric")
