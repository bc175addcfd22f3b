"""The charts of the page as plotly figures in the colours of the light theme, one for each choice of its selects."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from subspaces.evaluation import curves
from subspaces.evaluation.comparing import Group
from subspaces.evaluation.curves import Curve
from subspaces.evaluation.group_answers import each_answer, headed
from subspaces.evaluation.plane import begun
from subspaces.evaluation.record import Description, Plane, Record, Row
from subspaces.evaluation.statistics import spread
from subspaces.reports.page.content import Page, statistics_check, trained_on
from subspaces.reports.page.numbers import Table, better, capital, head, places, rounded, shown, unit
from subspaces.reports.page.tables import CHANGE, SHARE, Shifted, severity_name
from subspaces.reports.page.walk import ensemble_name, middle, run_name, shown_rows, vertex

LIGHT = ("#0072b2", "#c44e00", "#00785a", "#a8327d", "#7a6200", "#4b4f57")  # told apart by colour-blind readers
DARK = ("#56b4e9", "#f0a04b", "#3ccf9f", "#e79ac8", "#e8dc5a", "#c3c8d0")
TEXT, MUTED, GRID, GROUND = "#1b1e24", "#59606b", "#e4e7eb", "#ffffff"
THEME = {**dict(zip(LIGHT, DARK, strict=True)), TEXT: "#e6e8ec", MUTED: "#a3abb8", GRID: "#2d323b", GROUND: "#1e2127"}
"""What each colour is in the dark theme."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
LEVELS = {"network": "dot", "midpoint": "dashdot", "vertices": "longdash", "runs": "longdash", "dropout": "dash"}
LEVELS["random"] = "longdashdot"
RISKS = {"network": "dot", "midpoint": "dash", "average": "dash", "ensemble": "solid"}
FONT = "system-ui, sans-serif"
WHITE, BLACK = "rgb(255,255,255)", "rgb(0,0,0)"  # in both themes
Traces = list[dict[str, Any]]


@dataclass(frozen=True)
class Select:
    """A choice that the reader has."""

    name: str
    label: str
    options: list[str]


@dataclass(frozen=True)
class Chart:
    """Figures for every choice of some selects, by the numbers of the options."""

    label: str
    selects: list[Select]
    states: dict[str, dict[str, Any]]
    numbers: Table | None = None
    height: float | None = None  # in rem
    plots: tuple[str, ...] = ()  # what each of several beside each other is


def figure(data: Traces, **layout: Any) -> dict[str, Any]:
    """Return a figure of plotly as plain data."""
    import plotly.graph_objects as go

    made: dict[str, Any] = rounded(go.Figure(data, layout).to_plotly_json())
    return {"data": made["data"], "layout": {k: v for k, v in made["layout"].items() if k != "template"}}


def state(caption: str, *plots: dict[str, Any]) -> dict[str, Any]:
    """Return what is shown for one choice."""
    return {"caption": caption, "plots": plots}


def template() -> dict[str, Any]:
    """Return what all charts have in common."""
    axis: dict[str, Any] = {
        "gridcolor": GRID,
        "linecolor": MUTED,
        "tickcolor": GRID,
        "zeroline": False,
        "automargin": True,
    }
    axis |= {"tickfont": {"size": 12, "color": MUTED}, "title": {"font": {"size": 13, "color": MUTED}, "standoff": 10}}
    return {
        "font": {"family": FONT, "size": 13, "color": TEXT},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 12, "t": 28, "b": 46},
        "showlegend": False,
        "hoverlabel": {"bgcolor": GROUND, "bordercolor": MUTED, "font": {"color": TEXT, "size": 13}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": MUTED, "activecolor": TEXT},
        "xaxis": axis,
        "yaxis": axis,
    }


def plain(text: str) -> str:
    """Return text in which plotly sees no markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def colour(index: int) -> str:
    """Return the colour of a group."""
    return LIGHT[index % len(LIGHT)]


def symbol(index: int) -> str:
    """Return the marker of a group; where colours come again the pair is another one."""
    return SYMBOLS[(index + index // len(SYMBOLS)) % len(SYMBOLS)]


def axis_of(metric: Description) -> str:
    """Return the title of an axis."""
    return capital(metric.label) + (" (%)" if metric.percent else "")


def curve(
    name: str,
    found: Curve,
    index: int,
    scale: float = 1.0,
    form: str = ":.4~g",
    unit: str = "",
    *,
    dash: str = "solid",
    mark: str | None = None,
    band: bool = True,
    visible: bool = True,
) -> Traces:
    """Return the mean over seeds, with a band of one standard deviation where there are several."""
    mean, std, several = found.mean * scale, found.std * scale, len(found.values) > 1
    x, paint = found.grid.tolist(), colour(index)
    line: dict[str, Any] = {
        "type": "scatter",
        "name": plain(name),
        "legendgroup": name,
        "x": x,
        "y": mean.tolist(),
        "customdata": std.tolist() if several else None,
        "mode": "lines+markers" if mark else "lines",
        "line": {"color": paint, "dash": dash, "width": 2},
        "marker": {"color": paint, "symbol": mark, "size": 6},
        "hovertemplate": f"%{{y{form}}}{f' ± %{{customdata{form}}}' * several}{unit}<extra>%{{fullData.name}}</extra>",
        "visible": visible or "legendonly",
    }
    if not several or not band:
        return [line]
    outline = [*(mean + std).tolist(), *(mean - std)[::-1].tolist()]
    below = {
        "type": "scatter",
        "legendgroup": name,
        "showlegend": False,
        "x": x + x[::-1],
        "y": outline,
        "mode": "lines",
    }
    below |= {"line": {"width": 0}, "fill": "toself", "fillcolor": paint, "opacity": 0.12, "hoverinfo": "skip"}
    return [{**below, "visible": line["visible"]}, line]


def charts(page: Page) -> dict[str, Chart]:
    """Return all charts by the section that they stand in."""
    made = {
        "along": along(page),
        "roles": roles(page),
        "planes": planes(page),
        "training": training(page),
        "selective": selective(page),
    }
    return {name: chart for name, chart in made.items() if chart is not None}


def metric_select(page: Page) -> Select:
    """Return the choice of a metric."""
    return Select("along-metric", "Metric", [capital(each.label) for each in page.metrics])


# Along lines and curves, and at the points of simplexes


def along(page: Page) -> Chart | None:
    """Return a metric along lines and curves, and as levels where there is no alpha; None without any of these."""
    intervals = [group for group in page.groups if group.interval]
    if not intervals:
        return None
    averages = list(dict.fromkeys(average for group in intervals for average in averages_of(page, group)))
    selects = [metric_select(page)]
    if len(averages) > 1:
        selects.append(Select("along-average", "Ensembles average", averages))
    several = ". Bands: one standard deviation over seeds" * any(len(each.evaluations) > 1 for each in intervals)
    states = {}
    for at, metric in enumerate(page.metrics):
        for number, average in enumerate(averages or [""]):
            traces = [one for index, _ in enumerate(page.groups) for one in _along(page, index, metric, average)]
            axes = {
                "xaxis": {"title": {"text": "α"}, "hoverformat": ".3~g"},
                "yaxis": {"title": {"text": axis_of(metric)}},
            }
            caption = f"{capital(metric.label)}: {metric.meaning}{better(metric)}{several}."
            key = f"{at}|{number}" if len(averages) > 1 else str(at)
            states[key] = state(caption, figure(traces, hovermode="x unified", **axes))
    return Chart("a metric along the subspace", selects, states, _along_numbers(page, intervals, averages))


def averages_of(page: Page, group: Group) -> list[str]:
    """Return how the ensembles of alpha and 1 - alpha of a group are averaged, the usual way first."""
    frame = group.frame
    found = frame[(frame["data"] == page.split) & (frame["kind"] == "ensemble") & (frame["role"] == "along")]
    return list(dict.fromkeys(found["average"]))


def _along(page: Page, index: int, metric: Description, average: str) -> Traces:
    group, digits = page.groups[index], places(metric, page.images)
    style: dict[str, Any] = {"scale": metric.scale, "form": f":.{digits}f", "unit": unit(metric)}
    if not group.interval:
        grids = [curves.along(each, metric.name, page.split).grid.tolist() for each in page.groups if each.interval]
        grid = np.array(sorted({alpha for each in grids for alpha in each}))
        levels = [one for one in each_answer(group, page.split, together=True) if metric.name in one.frame]
        return [
            trace
            for one in levels
            for trace in curve(
                one.label,
                Curve(grid, np.repeat(one.frame[[metric.name]].to_numpy(float), len(grid), axis=1)),
                index,
                dash=LEVELS.get(one.kind, "dot"),
                band=False,
                visible=one.kind != "random",
                **style,
            )
        ]
    points = curves.along(group, metric.name, page.split)
    known = averages_of(page, group)
    pairs = curves.along(group, metric.name, page.split, average if average in known else None)
    found = curve(f"{group.label}: at α", points, index, dash="dash", mark=symbol(index), **style)
    if len(pairs.grid):
        name = f"{group.label}: α and 1 − α together"
        found += curve(name, curves.mirrored(pairs), index, mark=symbol(index), **style)
    return found


def _along_numbers(page: Page, groups: Sequence[Group], averages: Sequence[str]) -> Table:
    rows = []
    for group in groups:
        for average in ("", *averages_of(page, group)):
            found = [curves.along(group, each.name, page.split, average) for each in page.metrics]
            what = f"α and 1 − α together{f', mean of {average}' * (len(averages) > 1)}" if average else "at α"
            for at, alpha in enumerate(found[0].grid):
                values = [spread(one.values[:, at].tolist()) for one in found]
                numbers = [shown(*pair, page.images) for pair in zip(values, page.metrics, strict=True)]
                rows.append([f"{group.label}: {what}", f"{alpha:.3g}", *numbers])
    return Table(f"Along the subspace, {page.split} split", ["Answer", "α", *head(page.metrics)], rows)


def roles(page: Page) -> Chart | None:
    """Return a metric at the points of simplexes; None without any."""
    rows = [
        (index, group, _kind(group, one, row), row.metrics)
        for index, group in enumerate(page.groups)
        if group.shape["kind"] == "simplex"
        for one in group.evaluations
        for row in shown_rows(group, one, page.split)
        if row.average != "logits"
    ]
    if not rows:
        return None
    names, members = list(dict.fromkeys(row[2] for row in rows)), list(dict.fromkeys(row[0] for row in rows))
    rows.sort(key=lambda row: (row[0], names.index(row[2])))
    ticks = [plain(name).replace("ensemble of ", "ensemble of<br>") for name in names]
    vertical = {"tickvals": list(range(len(names))), "ticktext": ticks, "range": [len(names) - 0.4, -0.6]}
    states = {}
    for at, metric in enumerate(page.metrics):
        traces = []
        for number, index in enumerate(members):
            mine = [(name, metrics.get(metric.name)) for each, _, name, metrics in rows if each == index]
            apart = 0.5 * (number / (len(members) - 1) - 0.5) if len(members) > 1 else 0.0
            marker = {"color": colour(index), "symbol": f"{symbol(index)}-open", "size": 9, "line": {"width": 1.6}}
            form = f"%{{text}}: %{{x:.{places(metric, page.images)}f}}{unit(metric)}<extra>%{{fullData.name}}</extra>"
            traces.append(
                {"type": "scatter", "mode": "markers", "marker": marker, "hovertemplate": form}
                | {"name": plain(page.groups[index].label), "legendgroup": page.groups[index].label}
                | {"x": [None if value is None else value * metric.scale for _, value in mine]}
                | {"y": [names.index(name) + apart for name, _ in mine], "text": [plain(name) for name, _ in mine]}
            )
        caption = f"{capital(metric.label)} of every run: of single networks by where they are, then of ensembles."
        made = figure(traces, hovermode="closest", xaxis={"title": {"text": axis_of(metric)}}, yaxis=vertical)
        states[str(at)] = state(caption, made)
    numbers = [
        [group.label, name, *(shown(metrics.get(each.name), each, page.images) for each in page.metrics)]
        for _, group, name, metrics in rows
    ]
    table = Table(f"Measured points, {page.split} split", ["Method", "Point", *head(page.metrics)], numbers)
    height = max(16, 5 + 2.2 * len(names))
    return Chart("a metric at measured points", [metric_select(page)], states, table, height)


def _kind(group: Group, one: Record, row: Row) -> str:
    """Return which kind of point a row is of, or which ensemble, in words."""
    if row.kind == "ensemble":
        return ensemble_name(one, row)
    return {"vertex": vertex(group), "midpoint": middle(group, one)}.get(row.role, row.role)


# Over the epochs, and over the coverage


def training(page: Page) -> Chart | None:
    """Return how far apart the vertices are over the epochs; None where no log says it."""
    known = [(index, group) for index, group in enumerate(page.groups) if not group.trained_alone]
    parts = {"l2": "L2 distance", "cos2": "cos²"}
    found = {
        name: {index: curves.logged(group, name) for index, group in known if len(curves.logged(group, name).grid)}
        for name in parts
    }
    if not found["l2"]:
        return None
    plots = []
    for name, label in parts.items():
        traces = [one for index, each in found[name].items() for one in curve(page.groups[index].label, each, index)]
        vertical = {"title": {"text": label}, "rangemode": "tozero"}
        plots.append(figure(traces, hovermode="x unified", xaxis={"title": {"text": "Epoch"}}, yaxis=vertical))
    rows = [
        [page.groups[index].label, f"{epoch:g}", *(f"{found[name][index].mean[at]:.4g}" for name in parts)]
        for index, each in found["l2"].items()
        for at, epoch in enumerate(each.grid)
    ]
    several = any(len(each.values) > 1 for each in found["l2"].values())
    made = state("Bands: one standard deviation over seeds." if several else "", *plots)
    table = Table("The vertices over the epochs", ["Subspace", "Epoch", *parts.values()], rows)
    names = tuple(f"{label} of the vertices over the epochs" for label in parts.values())
    return Chart("the vertices over the epochs", [], {"": made}, table, plots=names)


def selective(page: Page) -> Chart | None:
    """Return the error over the coverage; None where nothing has one."""
    found = [
        (index, answer, curves.risk(answer.curves(page.split)))
        for index, group in enumerate(page.groups)
        for answer in headed([group], page.split)
        if all(row.risk_coverage is not None for row in answer.curves(page.split))
    ]
    if not found:
        return None
    form = f":.{places(SHARE, page.images)}f"
    traces = []
    for index, answer, each in found:
        mean = Curve(100 * each.grid, each.mean[None])
        traces += curve(answer.label, mean, index, 100, form, " %", dash=RISKS.get(answer.short, "solid"))
    horizontal = {"title": {"text": "Most confident answers kept (%)"}, "range": [0, 101], "hoverformat": ".1f"}
    vertical = {"title": {"text": "Error among them (%)"}, "rangemode": "tozero"}
    rows = [
        [answer.label, f"{100 * share:.1f}\u00a0%", f"{100 * error:.1f}\u00a0%"]
        for _, answer, each in found
        for share, error in zip(each.grid, each.mean, strict=True)
    ]
    caption = "AURC, in the tables, is the mean height of such a curve. Mean over seeds where there are several."
    made = state(caption, figure(traces, hovermode="x unified", xaxis=horizontal, yaxis=vertical))
    table = Table(f"Risk over coverage, {page.split} split", ["Answer", "Coverage", "Error"], rows)
    return Chart("risk over coverage", [], {"": made}, table)


# Shifted data


def shift(shifted: Shifted) -> Chart:
    """Return a metric by kind and severity of shifted data, or its relative change."""
    page, states = shifted.page, {}
    cells = {group.label: list(shifted.cells(group)) for group in shifted.groups}
    for number, answer in enumerate(one.before for one in shifted.answers):
        for at, metric in enumerate(shifted.metrics):
            for kind in range(2):
                known = CHANGE if kind else metric
                digits = 1 if kind else places(metric, page.images)
                values = [
                    (one.spread(metric.name) if kind else one.after.spread(metric.name)) if one is not None else None
                    for one in (found.get(answer.words) for _, _, found in cells[answer.group.label])
                ]
                across = len(shifted.severities)
                z = [None if one is None else known.scale * one.mean for one in values]
                around = [
                    "" if one is None or one.std is None else f" ± {known.scale * one.std:.{digits}f}" for one in values
                ]
                form = f"%{{z:{'+' * kind}.{digits}f}}"
                hover = f"%{{y}}, severity %{{x}}: {form}%{{customdata}}{unit(known)}<extra></extra>"
                trace = {
                    "type": "heatmap",
                    "x": [severity_name(each) for each in shifted.severities],
                    "y": [plain(each.label) for each in shifted.found],
                    "z": [z[first : first + across] for first in range(0, len(z), across)],
                    "customdata": [around[first : first + across] for first in range(0, len(z), across)],
                    "colorscale": "Cividis",
                    "reversescale": metric.lower_is_better,
                    "xgap": 2,
                    "ygap": 2,
                    "hoverongaps": False,
                    "texttemplate": form,
                    "textfont": {"size": 12},
                    "colorbar": {"thickness": 14, "outlinewidth": 0, "tickfont": {"color": MUTED}},
                    "hovertemplate": hover,
                }
                axes = {"type": "category", "showgrid": False}
                vertical = {**axes, "range": [len(shifted.found) - 0.5, -0.5]}
                what = f"Relative change of {capital(metric.label)} in %" if kind else axis_of(metric)
                caption = f"{answer.label}: {what}.{' Brighter is better.' * (metric.goal is None)}"
                made = figure([trace], xaxis={**axes, "title": {"text": "Severity"}}, yaxis=vertical)
                states[f"{number}|{at}|{kind}"] = state(caption, made)
    selects = [
        Select("shift-answer", "Answer", [one.before.label for one in shifted.answers]),
        Select("shift-metric", "Metric", [capital(each.label) for each in shifted.metrics]),
        Select("shift-show", "Show", ["values", "relative change"]),
    ]
    label = "a metric by kind and severity of shifted data"
    return Chart(label, selects, states, shifted.numbers(), 8 + 1.8 * len(shifted.found))


# Planes


def planes(page: Page) -> Chart | None:
    """Return the planes through three networks with a metric as height; None where there are none."""
    every = [(group, one, plane) for group, one in page.evaluations for plane in one.planes if begun(plane)]
    if not every:
        return None
    every.sort(key=lambda each: each[0].single)
    metrics = [each for each in page.metrics if all(each.name in plane.values for _, _, plane in every)]
    states = {}
    for number, (_, one, plane) in enumerate(every):
        for at, metric in enumerate(metrics):
            ratio = (plane.ys[-1] - plane.ys[0]) / (plane.xs[-1] - plane.xs[0])
            made = figure([*surface(page, plane, metric), *drawn_in(plane)], **plane_layout(plane, ratio))
            states[f"{number}|{at}"] = state(plane_caption(page, one, plane, metric), made)
    selects = [
        Select("planes-plane", "Plane", [f"{run_name(group, one)}: {plane.name}" for group, one, plane in every]),
        Select("planes-metric", "Height", [capital(each.label) for each in metrics]),
    ]
    return Chart("the plane", selects, states)


def cells(plane: Plane, metric: Description) -> list[list[float | None]]:
    """Return the metric of a plane as it is shown."""
    return [[None if v is None else metric.scale * v for v in line] for line in plane.values[metric.name]]


def surface(page: Page, plane: Plane, metric: Description) -> Traces:
    """Return the contours of a plane."""
    z = cells(plane, metric)
    known = sorted(value for line in z for value in line if value is not None)
    low, high, median = known[0], known[-1], known[len(known) // 2]
    top = min(high, max(4 * low, median)) if metric.lower_is_better else high  # far off, the loss knows no bounds
    step = round_step((top - low) / 16)
    title = {"text": axis_of(metric), "side": "right", "font": {"size": 13, "color": MUTED}}
    bar = {
        "title": title,
        "thickness": 14,
        "outlinewidth": 0,
        "tick0": 0,
        "dtick": 2 * step,
        "tickfont": {"color": MUTED},
    }
    levels = {"start": step * math.ceil(low / step), "end": step * math.floor(top / step), "size": step}
    return [
        {"type": "contour", "x": plane.xs, "y": plane.ys, "z": z, "zauto": False, "zmin": low, "zmax": top}
        | {"colorscale": "Cividis", "reversescale": metric.lower_is_better, "autocontour": False, "colorbar": bar}
        | {"contours": {"coloring": "heatmap", **levels}, "line": {"width": 0.6, "color": "rgba(255,255,255,0.35)"}}
        | {"hovertemplate": f"%{{z:.{places(metric, page.images)}f}}{unit(metric)}<extra></extra>", "showlegend": False}
    ]


def round_step(step: float) -> float:
    """Return the nearest round number that is not smaller."""
    power = 10.0 ** math.floor(math.log10(step or 1))
    return power * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * 0.999)


def drawn_in(plane: Plane) -> Traces:
    """Return the subspaces and the corners in a plane."""
    found: Traces = []
    for drawn in plane.drawn:
        off = [f", {distance:.3g} off the plane" * (distance > 0.01) for distance in drawn.distance]
        base = {"type": "scatter", "x": drawn.x, "y": drawn.y, "showlegend": False}
        named = {**base, "text": [plain(drawn.label) + each for each in off], "hovertemplate": "%{text}<extra></extra>"}
        if drawn.kind == "point":
            marker = {"color": WHITE, "size": 9, "symbol": "diamond", "line": {"color": BLACK, "width": 1.5}}
            found.append({**named, "mode": "markers", "marker": marker})
        else:
            found.append({**base, "mode": "lines", "line": {"color": BLACK, "width": 6}, "hoverinfo": "skip"})
            found.append({**named, "mode": "lines", "line": {"color": WHITE, "width": 3}})
    corners = {"x": [each.x for each in plane.corners], "y": [each.y for each in plane.corners]}
    marker = {"color": BLACK, "size": 11, "line": {"color": WHITE, "width": 2}}
    named = {"text": [plain(each.label) for each in plane.corners], "hovertemplate": "%{text}<extra></extra>"}
    return [*found, {"type": "scatter", "mode": "markers", "marker": marker, "showlegend": False, **corners, **named}]


def plane_layout(plane: Plane, ratio: float) -> dict[str, Any]:
    """Return axes of one scale, and the names of the corners."""
    side: dict[str, Any] = {"title": {"text": "Distance"}, "showgrid": False, "constrain": "domain"}
    named = {"showarrow": False, "yshift": 18, "font": {"color": WHITE, "size": 12}, "bgcolor": "rgba(0,0,0,0.65)"}
    return {
        "margin": {"l": 48, "r": 8, "t": 28, "b": 46},
        "hovermode": "closest",
        "xaxis": {**side, "range": [plane.xs[0], plane.xs[-1]]},
        "yaxis": {**side, "range": [plane.ys[0], plane.ys[-1]], "scaleanchor": "x"},
        "annotations": [
            {"x": each.x, "y": each.y, "text": plain(each.label), "borderpad": 3, **named} for each in plane.corners
        ],
        "meta": {"ratio": min(max(ratio, 0.5), 1.3)},  # so high that one unit is as long upwards as sideways
    }


def plane_caption(page: Page, one: Record, plane: Plane, metric: Description) -> str:
    """Return what a plane was measured on."""
    known = [value for line in plane.values[metric.name] for value in line if value is not None]
    far = max((distance for drawn in plane.drawn for distance in drawn.distance), default=0.0)
    low, high = (shown(value, metric, page.images) + unit(metric) for value in (min(known), max(known)))
    lies = f"up to {far:.3g} off the plane" if far > 0.01 else "in the plane"
    missing = " Some cells are not computed yet." * (len(known) < len(plane.xs) * len(plane.ys))
    check = statistics_check(one, plane.name, plane.count)
    return (
        f"{capital(metric.label)} from {low} to {high} on {len(plane.xs)} × {len(plane.ys)} cells; {plane.split} split, "
        f"{plane.count:,} {page.what}; batch-norm statistics of {plane.statistics_images:,} training {trained_on(one)} "
        f"in every cell. Axes: Euclidean distance in weight space. What is drawn lies {lies}."
        f"{check and f' {check}'}{missing}"
    )
