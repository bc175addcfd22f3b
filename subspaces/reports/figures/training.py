"""How far apart the vertices are, over the epochs."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from subspaces.reports.figures import style
from subspaces.reports.measures import measure
from subspaces.reports.reading import Group
from subspaces.text import nearest
from subspaces.training.runs import RunError


def figure(groups: Sequence[Group], metric: str | None, split: str) -> Figure:
    """Draw L2 distance and cos² one above the other, and a column of the log below where one is named."""
    columns = ["l2", "cos2"] if any(not group.runs[0].trained_alone for group in groups) else []
    if metric is not None and metric not in columns:
        columns.append(metric)
    _check(groups, columns)
    drawing = style.blank(style.COLUMN, 0.6 + 1.35 * len(columns))
    panels = drawing.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
    looks = style.looks(groups)
    for axes, column in zip(panels, columns, strict=True):
        quantity = measure(column)
        for group, look in zip(groups, looks, strict=True):
            curve = group.logged(column)
            if len(curve.grid) and not (group.runs[0].trained_alone and column in ("l2", "cos2")):
                style.band(axes, curve, quantity.scale, look, every=max(1, len(curve.grid) // 6))
        axes.set_ylabel(quantity.axis)
        if column in ("l2", "cos2"):
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


def _check(groups: Sequence[Group], columns: Sequence[str]) -> None:
    """Refuse runs without a log, a column that no log has, and single networks alone."""
    for run in (run for group in groups for run in group.runs):
        if not run.log:
            raise RunError(f"{run.folder} has no log.jsonl: train it first")
    known = dict.fromkeys(name for group in groups for row in group.runs[0].log for name in row if name != "epoch")
    for column in columns:
        if column not in known:
            raise ValueError(f"metric={column!r} is no column of the logs: {nearest(column, known)}")
    if not columns:
        raise RunError("only single networks among the runs: they have no distance between vertices; name a --metric")
