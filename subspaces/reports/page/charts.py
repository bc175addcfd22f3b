"""The charts of the page as plotly figures in the colours of the light theme, one for each choice of its selects."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from plotly import graph_objects as go

from subspaces.evaluation import curves
from subspaces.evaluation.comparing import Group
from subspaces.evaluation.curves import Curve
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.group_answers import GroupAnswer, each_answer, headed
from subspaces.evaluation.plane import begun
from subspaces.evaluation.rows import Description, Plane, Row
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
WHITE, BLACK, CLEAR = "rgb(255,255,255)", "rgb(0,0,0)", "rgba(0,0,0,0)"  # in both themes
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
LEVELS = {"network": "dot", "midpoint": "dashdot", "dropout": "dash", "random": "longdashdot"}
RISKS = {"network": "dot", "midpoint": "dash", "average": "dash"}
Traces = list[Any]


@dataclass(frozen=True)
class Chart:
    """Figures for every choice of some selects, by the numbers of the options."""

    label: str
    states: dict[str, dict[str, Any]]
    selects: list[tuple[str, str, list[str]]] = field(default_factory=list)  # name, label and options
    numbers: Table | None = None
    height: float | None = None  # in rem
    plots: tuple[str, ...] = ()  # what each of several beside each other is


def state(caption: str, *plots: tuple[Traces, dict[str, Any]]) -> dict[str, Any]:
    """Return traces and layout of each plot, and what is said below, as plain data."""
    made = [go.Figure(traces, layout, skip_invalid=False).to_plotly_json() for traces, layout in plots]
    both = [{"data": each["data"], "layout": each["layout"] | {"template": None}} for each in made]
    return {"caption": caption, "plots": rounded(both)}


def template() -> dict[str, Any]:
    """Return what all charts have in common."""
    axis = go.layout.XAxis(gridcolor=GRID, linecolor=MUTED, showline=True, tickcolor=GRID, zeroline=False)
    axis.update(automargin=True, tickfont_size=12, tickfont_color=MUTED, title_standoff=10)
    axis.update(title_font_size=13, title_font_color=MUTED)
    made = go.Layout(font_family="system-ui, sans-serif", font_size=13, font_color=TEXT, showlegend=False, xaxis=axis)
    made.update(hovermode="x unified")
    made.update(paper_bgcolor=CLEAR, plot_bgcolor=CLEAR, margin={"l": 56, "r": 12, "t": 28, "b": 46})
    made.update(hoverlabel_bgcolor=GROUND, hoverlabel_bordercolor=MUTED, hoverlabel_font_color=TEXT)
    made.update(modebar_bgcolor=CLEAR, modebar_color=MUTED, modebar_activecolor=TEXT, yaxis=axis.to_plotly_json())
    found: dict[str, Any] = made.to_plotly_json()
    return {name: part for name, part in found.items() if name != "template"}


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


def curve(name: str, found: Curve, index: int, scale: float = 1.0, form: str = ".4~g", **style: Any) -> Traces:
    """Return the mean over seeds, with a band of one standard deviation where there are several.

    `style` is the dash of the line, a mark on it, its unit, whether there is a band, and whether it is visible.
    """
    mean, std, several = found.mean * scale, found.std * scale, len(found.values) > 1
    x, paint, visible = found.grid.tolist(), colour(index), style.get("visible", True) or "legendonly"
    around = f" ± %{{customdata:{form}}}" * several
    line = go.Scatter(x=x, y=mean.tolist(), name=plain(name), legendgroup=name, visible=visible)
    line.update(customdata=std.tolist() if several else None, mode="lines+markers" if "mark" in style else "lines")
    line.update(line_color=paint, line_dash=style.get("dash", "solid"), line_width=2)
    line.update(marker_color=paint, marker_symbol=style.get("mark"), marker_size=6)
    line.update(hovertemplate=f"%{{y:{form}}}{around}{style.get('unit', '')}<extra>%{{fullData.name}}</extra>")
    if not several or not style.get("band", True):
        return [line]
    band = go.Scatter(x=x + x[::-1], y=[*(mean + std).tolist(), *(mean - std)[::-1].tolist()], visible=visible)
    band.update(mode="lines", line_width=0, fill="toself", fillcolor=paint, opacity=0.12, hoverinfo="skip")
    return [band.update(legendgroup=name, showlegend=False), line]


def charts(page: Page, shifted: Shifted) -> dict[str, Chart]:
    """Return all charts by the section that they stand in."""
    made = {"along": along(page), "roles": roles(page), "planes": planes(page), "training": training(page)}
    made |= {"selective": selective(page), "shift": shift(shifted)}
    return {name: chart for name, chart in made.items() if chart is not None}


def metric_select(page: Page) -> tuple[str, str, list[str]]:
    """Return the choice of a metric."""
    return "along-metric", "Metric", [capital(each.label) for each in page.metrics]


# Along lines and curves, and at the points of simplexes


def along(page: Page) -> Chart | None:
    """Return a metric along lines and curves, and as levels where there is no alpha; None without any of these."""
    intervals = [group for group in page.groups if group.interval]
    if not intervals:
        return None
    averages = list(dict.fromkeys(average for group in intervals for average in averages_of(page, group)))
    more = [("along-average", "Ensembles average", averages)] if len(averages) > 1 else []
    several = ". Bands: one standard deviation over seeds" * any(len(each.evaluations) > 1 for each in intervals)
    levels = [[] if each.interval else each_answer(each, page.split, together=True) for each in page.groups]
    states = {}
    for at, metric in enumerate(page.metrics):
        for number, average in enumerate(averages or [""]):
            traces = [one for k, each in enumerate(levels) for one in _along(page, k, metric, average, each)]
            caption = f"{capital(metric.label)}: {metric.meaning}{better(metric)}{several}."
            layout = {"xaxis_title_text": "α", "xaxis_hoverformat": ".3~g", "yaxis_title_text": axis_of(metric)}
            states[f"{at}|{number}" if more else f"{at}"] = state(caption, (traces, layout))
    rows = []
    for group in intervals:
        for average in ("", *averages_of(page, group)):
            found = [curves.along(group, each.name, page.split, average) for each in page.metrics]
            what = f"α and 1 − α together{f', mean of {average}' * (len(averages) > 1)}" if average else "at α"
            for at, alpha in enumerate(found[0].grid):
                values = zip([spread(one.values[:, at].tolist()) for one in found], page.metrics, strict=True)
                rows.append([f"{group.label}: {what}", f"{alpha:.3g}", *(shown(*each, page.images) for each in values)])
    table = Table(f"Along the subspace, {page.split} split", ["Answer", "α", *head(page.metrics)], rows)
    return Chart("a metric along the subspace", states, [metric_select(page), *more], table)


def averages_of(page: Page, group: Group) -> list[str]:
    """Return how the ensembles of alpha and 1 - alpha of a group are averaged, the usual way first."""
    frame = group.frame
    found = frame[(frame["data"] == page.split) & (frame["kind"] == "ensemble") & (frame["role"] == "along")]
    return list(dict.fromkeys(found["average"]))


def _along(page: Page, index: int, metric: Description, average: str, levels: list[GroupAnswer]) -> Traces:
    group, form = page.groups[index], f".{places(metric, page.images)}f"
    how: dict[str, Any] = {"scale": metric.scale, "form": form, "unit": unit(metric)}
    if group.interval:
        points = curves.along(group, metric.name, page.split)
        pairs = curves.along(group, metric.name, page.split, average if average in averages_of(page, group) else None)
        found = curve(f"{group.label}: at α", points, index, dash="dash", mark=symbol(index), **how)
        if len(pairs.grid):
            name = f"{group.label}: α and 1 − α together"
            found += curve(name, curves.mirrored(pairs), index, mark=symbol(index), **how)
        return found
    grids = [curves.along(each, metric.name, page.split).grid.tolist() for each in page.groups if each.interval]
    grid, found = np.array(sorted({alpha for each in grids for alpha in each})), []
    for one in levels:
        level = Curve(grid, np.repeat(one.frame[[metric.name]].to_numpy(float), len(grid), axis=1))
        dash, visible = LEVELS.get(one.kind, "longdash"), one.kind != "random"
        found += curve(one.label, level, index, dash=dash, band=False, visible=visible, **how)
    return found


def roles(page: Page) -> Chart | None:
    """Return a metric at the points of simplexes; None without any."""
    rows = [
        (index, _kind(group, one, row), row.metrics)
        for index, group in enumerate(page.groups)
        if group.shape["kind"] == "simplex"
        for one in group.evaluations
        for row in shown_rows(group, one, page.split)
        if row.average != "logits"
    ]
    if not rows:
        return None
    names, members = list(dict.fromkeys(row[1] for row in rows)), list(dict.fromkeys(row[0] for row in rows))
    rows.sort(key=lambda row: (row[0], names.index(row[1])))
    layout: dict[str, Any] = {"hovermode": "closest", "yaxis_tickvals": list(range(len(names)))}
    layout |= {"yaxis_ticktext": [plain(name).replace("ensemble of ", "ensemble of<br>") for name in names]}
    layout |= {"yaxis_range": [len(names) - 0.4, -0.6]}
    states = {}
    for at, metric in enumerate(page.metrics):
        traces = []
        for number, index in enumerate(members):
            mine, label = [row for row in rows if row[0] == index], page.groups[index].label
            apart = 0.5 * (number / (len(members) - 1) - 0.5) if len(members) > 1 else 0.0
            values = [metrics.get(metric.name, math.nan) * metric.scale for _, _, metrics in mine]
            marks = go.Scatter(x=values, y=[names.index(name) + apart for _, name, _ in mine], mode="markers")
            marks.update(marker_color=colour(index), marker_symbol=f"{symbol(index)}-open", marker_size=9)
            marks.update(
                marker_line_width=1.6, name=plain(label), legendgroup=label, text=[plain(row[1]) for row in mine]
            )
            form = f"%{{x:.{places(metric, page.images)}f}}{unit(metric)}"
            traces.append(marks.update(hovertemplate=f"%{{text}}: {form}<extra>%{{fullData.name}}</extra>"))
        caption = f"{capital(metric.label)} of every run: of single networks by where they are, then of ensembles."
        states[str(at)] = state(caption, (traces, layout | {"xaxis_title_text": axis_of(metric)}))
    numbers = [
        [page.groups[at].label, name, *(shown(found.get(each.name), each, page.images) for each in page.metrics)]
        for at, name, found in rows
    ]
    table = Table(f"Measured points, {page.split} split", ["Method", "Point", *head(page.metrics)], numbers)
    height = max(16, 5 + 2.2 * len(names))
    return Chart("a metric at measured points", states, [metric_select(page)], table, height)


def _kind(group: Group, one: Evaluation, row: Row) -> str:
    """Return which kind of point a row is of, or which ensemble, in words."""
    if row.kind == "ensemble":
        return ensemble_name(one, row)
    return {"vertex": vertex(group), "midpoint": middle(group, one)}.get(row.role, row.role)


# Over the epochs, and over the coverage


def training(page: Page) -> Chart | None:
    """Return how far apart the vertices are over the epochs; None where no log has it."""
    groups = [(index, group) for index, group in enumerate(page.groups) if not group.trained_alone]
    parts = {"l2": "L2 distance", "cos2": "cos²"}
    found = [[curves.logged(group, name) for name in parts] for _, group in groups]
    if not any(len(l2.grid) for l2, _ in found):
        return None
    plots = []
    for at, label in enumerate(parts.values()):
        pairs = zip(groups, found, strict=True)
        traces = [one for (index, group), both in pairs for one in curve(group.label, both[at], index)]
        layout = {"xaxis_title_text": "Epoch", "yaxis_title_text": label, "yaxis_rangemode": "tozero"}
        plots.append((traces, layout))
    rows = [
        [group.label, f"{epoch:g}", *(f"{each.mean[at]:.4g}" for each in both)]
        for (_, group), both in zip(groups, found, strict=True)
        for at, epoch in enumerate(both[0].grid)
    ]
    several = any(len(l2.values) > 1 for l2, _ in found)
    made = state("Bands: one standard deviation over seeds." if several else "", *plots)
    table = Table("The vertices over the epochs", ["Subspace", "Epoch", *parts.values()], rows)
    names = tuple(f"{label} of the vertices over the epochs" for label in parts.values())
    return Chart("the vertices over the epochs", {"": made}, numbers=table, plots=names)


def selective(page: Page) -> Chart | None:
    """Return the error over the coverage; None where nothing has one."""
    every = [(index, answer) for index, group in enumerate(page.groups) for answer in headed([group], page.split)]
    known = [(index, answer, answer.curves(page.split)) for index, answer in every]
    found = [(at, one, curves.risk(rows)) for at, one, rows in known if all(row.risk_coverage for row in rows)]
    if not found:
        return None
    traces, rows, digits = Traces(), list[list[str]](), places(SHARE, page.images)
    for index, answer, each in found:
        mean, dash = Curve(100 * each.grid, each.mean[None]), RISKS.get(answer.short, "solid")
        traces += curve(answer.label, mean, index, 100, f".{digits}f", dash=dash, unit=" %")
        both = zip(each.grid, each.mean, strict=True)
        rows += [[answer.label, f"{100 * share:.1f}\u00a0%", f"{100 * error:.1f}\u00a0%"] for share, error in both]
    layout: dict[str, Any] = {"xaxis_title_text": "Most confident answers kept (%)", "xaxis_range": [0, 101]}
    layout |= {"xaxis_hoverformat": ".1f", "yaxis_title_text": "Error among them (%)", "yaxis_rangemode": "tozero"}
    caption = "AURC, in the tables, is the mean height of such a curve. Mean over seeds where there are several."
    table = Table(f"Risk over coverage, {page.split} split", ["Answer", "Coverage", "Error"], rows)
    return Chart("risk over coverage", {"": state(caption, (traces, layout))}, numbers=table)


# Shifted data


def shift(shifted: Shifted) -> Chart | None:
    """Return a metric by kind and severity of shifted data, or its relative change; None where there are none."""
    page, states = shifted.page, {}
    names = [plain(each.label) for each in shifted.found]
    strengths = [severity_name(each) for each in shifted.severities]
    layout: dict[str, Any] = {"xaxis_title_text": "Severity", "yaxis_range": [len(names) - 0.5, -0.5]}
    layout |= {f"{axis}_type": "category" for axis in ("xaxis", "yaxis")} | {"hovermode": "closest"}
    layout |= {f"{axis}_showgrid": False for axis in ("xaxis", "yaxis")}
    for number, answer in enumerate(one.before for one in shifted.answers):
        every = [found.get(answer.words) for _, _, found in shifted.cells[answer.group.label]]
        for at, metric in enumerate(shifted.metrics):
            for kind, known in enumerate((metric, CHANGE)):
                values = [one and (one.spread(metric.name) if kind else one.after.spread(metric.name)) for one in every]
                form = f":{'+' * kind}.{1 if kind else places(metric, page.images)}f"
                digits = 1 if kind else places(metric, page.images)
                z = np.array([known.scale * one.mean if one else math.nan for one in values])
                stds = [one.std if one else None for one in values]
                around = ["" if std is None else f" ± {known.scale * std:.{digits}f}" for std in stds]
                shape = len(names), len(strengths)
                heat = go.Heatmap(x=strengths, y=names, z=z.reshape(shape).tolist(), xgap=2, ygap=2, hoverongaps=False)
                heat.update(customdata=np.array(around).reshape(shape).tolist(), texttemplate=f"%{{z{form}}}")
                heat.update(colorscale="Cividis", reversescale=metric.lower_is_better, textfont_size=12)
                heat.update(colorbar_thickness=14, colorbar_outlinewidth=0, colorbar_tickfont_color=MUTED)
                said = f"%{{y}}, severity %{{x}}: %{{z{form}}}%{{customdata}}{unit(known)}<extra></extra>"
                what = f"Relative change of {capital(metric.label)} in %" if kind else axis_of(metric)
                caption = f"{answer.label}: {what}.{' Brighter is better.' * (metric.goal is None)}"
                states[f"{number}|{at}|{kind}"] = state(caption, ([heat.update(hovertemplate=said)], layout))
    selects = [
        ("shift-answer", "Answer", [one.before.label for one in shifted.answers]),
        ("shift-metric", "Metric", [capital(each.label) for each in shifted.metrics]),
        ("shift-show", "Show", ["values", "relative change"]),
    ]
    label = "a metric by kind and severity of shifted data"
    return Chart(label, states, selects, shifted.numbers(), 8 + 1.8 * len(names)) if states else None


# Planes


def planes(page: Page) -> Chart | None:
    """Return the planes through three networks with a metric as height; None where there are none."""
    every = [(group, one, plane) for group, one in page.evaluations for plane in one.planes if begun(plane)]
    every.sort(key=lambda each: each[0].single)
    metrics = [each for each in page.metrics if all(each.name in plane.values for _, _, plane in every)]
    states = {}
    for number, (_, one, plane) in enumerate(every):
        for at, metric in enumerate(metrics):
            made = ([surface(page, plane, metric), *drawn_in(plane)], plane_layout(plane))
            states[f"{number}|{at}"] = state(plane_caption(page, one, plane, metric), made)
    selects = [
        ("planes-plane", "Plane", [f"{run_name(group, one)}: {plane.name}" for group, one, plane in every]),
        ("planes-metric", "Height", [capital(each.label) for each in metrics]),
    ]
    return Chart("the plane", states, selects) if states else None


def surface(page: Page, plane: Plane, metric: Description) -> Any:
    """Return the contours of a plane."""
    z = metric.scale * np.array(plane.values[metric.name], float)
    known = np.sort(z[np.isfinite(z)])
    low, high, median = float(known[0]), float(known[-1]), float(known[len(known) // 2])
    top = min(high, max(4 * low, median)) if metric.lower_is_better else high  # far off, the loss knows no bounds
    step = round_step((top - low) / 16)
    made = go.Contour(x=plane.xs, y=plane.ys, z=z.tolist(), zauto=False, zmin=low, zmax=top, autocontour=False)
    made.update(colorscale="Cividis", reversescale=metric.lower_is_better, contours_coloring="heatmap")
    made.update(contours_start=step * math.ceil(low / step), contours_end=step * math.floor(top / step))
    made.update(contours_size=step, line_width=0.6, line_color="rgba(255,255,255,0.35)")
    made.update(colorbar_title_text=axis_of(metric), colorbar_title_side="right", colorbar_title_font_color=MUTED)
    made.update(colorbar_thickness=14, colorbar_outlinewidth=0, colorbar_tick0=0, colorbar_dtick=2 * step)
    made.update(colorbar_tickfont_color=MUTED, colorbar_title_font_size=13)
    return made.update(hovertemplate=f"%{{z:.{places(metric, page.images)}f}}{unit(metric)}<extra></extra>")


def round_step(step: float) -> float:
    """Return the nearest round number that is not smaller."""
    power = 10.0 ** math.floor(math.log10(step or 1))
    return power * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * 0.999)


def drawn_in(plane: Plane) -> Traces:
    """Return the subspaces and the corners in a plane."""
    found: Traces = []
    for drawn in plane.drawn:
        words = [plain(drawn.label) + f", {each:.3g} off the plane" * (each > 0.01) for each in drawn.distance]
        named = go.Scatter(x=drawn.x, y=drawn.y, text=words, hovertemplate="%{text}<extra></extra>", mode="lines")
        if drawn.kind == "point":
            named.update(mode="markers", marker_color=WHITE, marker_size=9, marker_symbol="diamond")
            named.update(marker_line_color=BLACK, marker_line_width=1.5)
        else:
            casing = go.Scatter(x=drawn.x, y=drawn.y, mode="lines", line_color=BLACK, line_width=6, hoverinfo="skip")
            found.append(casing)
            named.update(line_color=WHITE, line_width=3)
        found.append(named)
    corners = go.Scatter(x=[each.x for each in plane.corners], y=[each.y for each in plane.corners], mode="markers")
    corners.update(marker_color=BLACK, marker_size=11, marker_line_color=WHITE, marker_line_width=2)
    corners.update(text=[plain(each.label) for each in plane.corners], hovertemplate="%{text}<extra></extra>")
    return [*found, corners]


def plane_layout(plane: Plane) -> dict[str, Any]:
    """Return axes of one scale, and the names of the corners."""
    ratio = (plane.ys[-1] - plane.ys[0]) / (plane.xs[-1] - plane.xs[0])
    side: dict[str, Any] = {"title": {"text": "Distance"}, "showgrid": False, "constrain": "domain"}
    named = {"showarrow": False, "yshift": 18, "font": {"color": WHITE, "size": 12}, "bgcolor": "rgba(0,0,0,0.65)"}
    corners = [{"x": each.x, "y": each.y, "text": plain(each.label), "borderpad": 3} for each in plane.corners]
    return {
        "margin": {"l": 48, "r": 8, "t": 28, "b": 46},
        "hovermode": "closest",
        "xaxis": {**side, "range": [plane.xs[0], plane.xs[-1]]},
        "yaxis": {**side, "range": [plane.ys[0], plane.ys[-1]], "scaleanchor": "x"},
        "annotations": [each | named for each in corners],
        "meta": {"ratio": min(max(ratio, 0.5), 1.3)},  # so high that one unit is as long upwards as sideways
    }


def plane_caption(page: Page, one: Evaluation, plane: Plane, metric: Description) -> str:
    """Return what a plane was measured on."""
    known = [value for line in plane.values[metric.name] for value in line if value is not None]
    far = max((distance for drawn in plane.drawn for distance in drawn.distance), default=0.0)
    low, high = (shown(value, metric, page.images) + unit(metric) for value in (min(known), max(known)))
    parts = [
        f"{capital(metric.label)} from {low} to {high} on {len(plane.xs)} × {len(plane.ys)} cells; "
        f"{plane.split} split, {plane.count:,} {page.what}; batch-norm statistics of {plane.statistics_images:,} "
        f"training {trained_on(one)} in every cell. Axes: Euclidean distance in weight space.",
        f"What is drawn lies {f'up to {far:.3g} off the plane' if far > 0.01 else 'in the plane'}.",
        statistics_check(one, plane.name, plane.count),
        "Some cells are not computed yet." * (len(known) < len(plane.xs) * len(plane.ys)),
    ]
    return " ".join(filter(None, parts))
