"""The charts of the page as plotly figures in the colours of the light theme, one for each choice of its selects."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from plotly import graph_objects as go

from subspaces.evaluation.comparing import each_answer
from subspaces.evaluation.curves import Curve, described
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.plane import begun
from subspaces.evaluation.rows import SPLIT, Plane
from subspaces.reports import series
from subspaces.reports.content import Page, better, capital, run_name, unit
from subspaces.reports.series import Series
from subspaces.reports.tables import Shifted

LIGHT = ("#0072b2", "#c44e00", "#00785a", "#a8327d", "#7a6200", "#4b4f57")  # told apart by colour-blind readers
DARK = ("#56b4e9", "#f0a04b", "#3ccf9f", "#e79ac8", "#e8dc5a", "#c3c8d0")
TEXT, MUTED, GRID, GROUND = "#1b1e24", "#59606b", "#e4e7eb", "#ffffff"
THEME = {**dict(zip(LIGHT, DARK, strict=True)), TEXT: "#e6e8ec", MUTED: "#a3abb8", GRID: "#2d323b", GROUND: "#1e2127"}
"""What each colour is in the dark theme."""
CLEAR, WHITE, BLACK = "rgba(0,0,0,0)", "rgb(255,255,255)", "rgb(0,0,0)"  # in both themes
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
DASHES = {"dot": "2 3", "dash": "6 4", "dashdot": "7 3 2 3", "longdash": "10 4", "longdashdot": "10 3 2 3"}
LEVELS = {"network": "dot", "midpoint": "dashdot", "random": "longdashdot"}
BANDS = "Bands: one standard deviation over seeds."
State = dict[str, Any]
"""A caption, and the traces and the layout of each plot."""
Select = tuple[str, str, list[str]]
"""Its id, its label and its options."""


@dataclass(frozen=True)
class Chart:
    """Figures for every choice of some selects, by the numbers of the options."""

    plots: Sequence[str]  # what each of those beside each other is
    states: dict[str, State]
    selects: Sequence[Select] = ()
    legend: Sequence[dict[str, Any]] = ()
    height: float | None = None  # in rem


def charts(page: Page, shifted: Shifted) -> dict[str, Chart]:
    """Return all charts by the section that they stand in."""
    made = {"along": _along(page), "planes": _planes(page), "training": _training(page)}
    made["shift"] = _shift(shifted)
    return {name: chart for name, chart in made.items() if chart is not None}


def template() -> dict[str, Any]:
    """Return what all charts have in common."""
    side = {"gridcolor": GRID, "linecolor": MUTED, "tickcolor": GRID, "showline": True, "zeroline": False}
    side |= {"automargin": True, "tickfont_size": 12, "tickfont_color": MUTED, "title_standoff": 10}
    side |= {"title_font_size": 13, "title_font_color": MUTED}
    made: dict[str, Any] = {f"{name}_{key}": side[key] for name in ("xaxis", "yaxis") for key in side}
    made |= {"font": {"family": "system-ui, sans-serif", "size": 13, "color": TEXT}, "hovermode": "x unified"}
    made |= {"showlegend": False, "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"}}
    made |= {"paper_bgcolor": CLEAR, "plot_bgcolor": CLEAR, "margin": {"l": 56, "r": 12, "t": 28, "b": 46}}
    made |= {"hoverlabel": {"bgcolor": GROUND, "bordercolor": MUTED, "font": {"color": TEXT}}}
    return dict(go.Layout(made, modebar={"bgcolor": CLEAR, "color": MUTED, "activecolor": TEXT}).to_plotly_json())


def _state(caption: str, *plots: tuple[Sequence[Any], dict[str, Any]]) -> State:
    made = [([one.to_plotly_json() for one in traces], go.Layout(layout).to_plotly_json()) for traces, layout in plots]
    return {"caption": caption, "plots": [{"data": traces, "layout": layout} for traces, layout in made]}


def _legend(state: State, hidden: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return what the legend says of each line: its name, colours, dashes, and whether it is shown at first."""
    found = []
    for one in state["plots"][0]["data"]:
        if name := one.get("name") and one["legendgroup"]:
            dashes, colour = DASHES.get(one["line"]["dash"], "none"), one["line"]["color"]
            about = {"name": name, "colours": (colour, THEME[colour]), "dashes": dashes}
            found.append({**about, "marked": "markers" in one["mode"], "shown": name not in hidden})
    return found if len(found) > 1 else []


def plain(text: str) -> str:
    """Return text in which plotly sees no markup."""
    return html.escape(text, quote=False)


def _line(one: Series, form: str, suffix: str = "", dash: str = "solid", band: bool = True) -> list[Any]:
    """Return the mean over seeds, with a band of one standard deviation where there are several."""
    x, mean, std, several = one.curve.grid.tolist(), one.curve.mean, one.curve.std, len(one.curve.values) > 1
    number = one.group + one.group // len(SYMBOLS)  # where colours come again the marker is another one
    paint, around = LIGHT[one.group % len(LIGHT)], f" ± %{{customdata:{form}}}" * several
    line = {"x": x, "y": mean.tolist(), "customdata": std.tolist() if several else None, "name": plain(one.label)}
    line |= {"mode": "lines+markers" if one.kind in ("points", "pairs") else "lines", "legendgroup": one.label}
    line |= {"line": {"color": paint, "dash": dash, "width": 2}}
    line |= {"marker": {"color": paint, "size": 6, "symbol": SYMBOLS[number % len(SYMBOLS)]}}
    line |= {"hovertemplate": f"%{{y:{form}}}{around}{suffix}<extra>%{{fullData.name}}</extra>"}
    shade = {"x": x + x[::-1], "y": [*(mean + std).tolist(), *(mean - std)[::-1].tolist()], "mode": "lines"}
    shade |= {"fill": "toself", "fillcolor": paint, "opacity": 0.12, "line_width": 0, "hoverinfo": "skip"}
    return [go.Scatter(shade, legendgroup=one.label)] * (several and band) + [go.Scatter(line)]


# Lines: along the subspace, over the epochs


def _along(page: Page) -> Chart | None:
    """Return a metric along lines and curves, and as levels where there is no alpha; None without any of these."""
    intervals = [group for group in page.groups if group.interval]
    if not intervals:
        return None
    several = f" {BANDS}" * any(len(each.evaluations) > 1 for each in intervals)
    others = [group for group in page.groups if not group.interval]
    levels = [one for group in others for one in each_answer(group, together=True)]
    states: dict[str, State] = {}
    for at, metric in enumerate(page.metrics):
        caption = f"{capital(metric.label)}: {metric.meaning}{better(metric)}.{several}"
        layout = {"xaxis_title_text": "α", "xaxis_hoverformat": ".3~g", "yaxis_title_text": capital(metric.axis)}
        found = series.along(page.groups, metric, SPLIT, levels)
        grid = np.unique(np.concatenate([each.curve.grid for each in found if each.kind == "points"]))
        traces = []
        for one in found:
            form, dash, drawn = f".{page.places(metric)}f", "dash" if one.kind == "points" else "solid", one
            if one.answer is not None:
                dash = LEVELS.get(one.answer.kind, "longdash")
                drawn = replace(one, curve=Curve(grid, np.repeat(one.curve.values, len(grid), axis=1)))
            traces += _line(drawn, form, unit(metric), dash, band=one.answer is None)
        states[f"{at}"] = _state(caption, (traces, layout))
    selects = [("along-metric", "Metric", [capital(each.label) for each in page.metrics])]
    legend = _legend(states["0"], [one.label for one in levels if one.kind == "random"])
    return Chart(["a metric along the subspace"], states, selects, legend)


def _training(page: Page) -> Chart | None:
    parts = [described(name) for name in series.LOGGED]
    found = [series.logged(page.groups, part) for part in parts]
    if not found[0]:
        return None
    layout = {"xaxis_title_text": "Epoch", "yaxis_rangemode": "tozero"}
    plots = [
        ([trace for one in lines for trace in _line(one, ".4~g")], layout | {"yaxis_title_text": part.label})
        for part, lines in zip(parts, found, strict=True)
    ]
    state = _state(BANDS * any(len(one.curve.values) > 1 for one in found[0]), *plots)
    beside = [f"{part.label} of the vertices over the epochs" for part in parts]
    return Chart(beside, {"": state}, legend=_legend(state))


# Shifted data


def _shift(shifted: Shifted) -> Chart | None:
    page, names = shifted.page, [plain(each.label) for each in shifted.found]
    strengths = [str(severity) if severity else "as given" for severity in shifted.severities]
    layout: dict[str, Any] = {"xaxis_title_text": "Severity", "yaxis_range": [len(names) - 0.5, -0.5]}
    layout |= {f"{side}_type": "category" for side in ("xaxis", "yaxis")} | {"hovermode": "closest"}
    layout |= {f"{side}_showgrid": False for side in ("xaxis", "yaxis")}
    states: dict[str, State] = {}
    for number, answer in enumerate(one.before for one in shifted.answers):
        cells = [found.get(answer.words) for found in shifted.cells[answer.group.label]]
        for at, metric in enumerate(shifted.metrics):
            values = [one and one.after.spread(metric.name) for one in cells]
            form, shape = f".{page.places(metric)}f", (len(names), len(strengths))
            z = np.array([metric.scale * one.mean if one else math.nan for one in values]).reshape(shape)
            stds = [one.std if one else None for one in values]
            around = np.array(["" if std is None else f" ± {metric.scale * std:{form}}" for std in stds])
            said = f"%{{y}}, severity %{{x}}: %{{z:{form}}}%{{customdata}}{unit(metric)}<extra></extra>"
            heat = {"x": strengths, "y": names, "z": z.tolist(), "customdata": around.reshape(shape).tolist()}
            heat |= {"texttemplate": f"%{{z:{form}}}", "hovertemplate": said, "hoverongaps": False}
            heat |= {"xgap": 2, "ygap": 2, "textfont": {"size": 12}, **_colours(metric)}
            caption = f"{answer.label}: {capital(metric.axis)}.{' Brighter is better.' * (metric.goal is None)}"
            states[f"{number}|{at}"] = _state(caption, ([go.Heatmap(heat)], layout))
    selects = [
        ("shift-answer", "Answer", [one.before.label for one in shifted.answers]),
        ("shift-metric", "Metric", [capital(each.label) for each in shifted.metrics]),
    ]
    label = "a metric by kind and severity of shifted data"
    return Chart([label], states, selects, height=8 + 1.8 * len(names)) if states else None


def _colours(metric: Metric, title: str = "") -> dict[str, Any]:
    """Return a colour scale on which brighter is better, and its bar."""
    bar = {"thickness": 14, "outlinewidth": 0, "tickfont": {"color": MUTED}}
    bar |= {"title": {"text": title, "side": "right", "font": {"size": 13, "color": MUTED}}}
    return {"colorscale": "Cividis", "reversescale": metric.lower_is_better, "colorbar": bar}


# Planes through three networks


def _planes(page: Page) -> Chart | None:
    every = [(group, one, plane) for group, one in page.evaluations for plane in one.planes if begun(plane)]
    every.sort(key=lambda each: each[0].single)
    metrics = [each for each in page.metrics if all(each.name in plane.values for _, _, plane in every)]
    states = {}
    for number, (_, one, plane) in enumerate(every):
        drawn, sides = _drawn_in(plane), _sides(plane)
        for at, metric in enumerate(metrics):
            caption = (
                f"{capital(metric.label)} on {len(plane.xs)} × {len(plane.ys)} cells; {plane.split} split, "
                f"{plane.count:,} {page.what}; batch-norm statistics of {plane.statistics_images:,} training "
                f"{'examples' if one.training is None else 'images'} in every cell."
            )
            missing = any(value is None for line in plane.values[metric.name] for value in line)
            caption += " Some cells are not computed yet." * missing
            states[f"{number}|{at}"] = _state(caption, ([_surface(page, plane, metric), *drawn], sides))
    selects = [
        ("planes-plane", "Plane", [f"{run_name(group, one)}: {plane.name}" for group, one, plane in every]),
        ("planes-metric", "Height", [capital(each.label) for each in metrics]),
    ]
    return Chart(["the plane"], states, selects) if states else None


def _surface(page: Page, plane: Plane, metric: Metric) -> Any:
    z = metric.scale * np.array(plane.values[metric.name], float)
    known = np.sort(z[np.isfinite(z)])
    low, high, median = float(known[0]), float(known[-1]), float(known[len(known) // 2])
    top = min(high, max(4 * low, median)) if metric.lower_is_better else high  # far off, the loss knows no bounds
    made = {"x": plane.xs, "y": plane.ys, "z": z.tolist(), "zauto": False, "zmin": low, "zmax": top, "ncontours": 16}
    made |= {"contours": {"coloring": "heatmap"}, "line": {"width": 0.6, "color": "rgba(255,255,255,0.35)"}}
    made |= {"hovertemplate": f"%{{z:.{page.places(metric)}f}}{unit(metric)}<extra></extra>"}
    return go.Contour(made | _colours(metric, capital(metric.axis)))


def _drawn_in(plane: Plane) -> list[Any]:
    found: list[Any] = []
    for drawn in plane.drawn:
        words = [plain(drawn.label) + f", {each:.3g} off the plane" * (each > 0.01) for each in drawn.distance]
        about = {"x": drawn.x, "y": drawn.y, "text": words, "hovertemplate": "%{text}<extra></extra>"}
        if drawn.kind == "point":
            mark = {"color": WHITE, "size": 9, "symbol": "diamond", "line": {"color": BLACK, "width": 1.5}}
            found.append(go.Scatter(about, mode="markers", marker=mark))
        else:
            casing = {"line": {"color": BLACK, "width": 6}, "hoverinfo": "skip", "hovertemplate": None}
            found.append(go.Scatter(about | casing, mode="lines"))
            found.append(go.Scatter(about, mode="lines", line={"color": WHITE, "width": 3}))
    corners = {name: [getattr(each, name) for each in plane.corners] for name in ("x", "y")}
    mark = {"color": BLACK, "size": 11, "line": {"color": WHITE, "width": 2}}
    return [*found, go.Scatter(corners, mode="markers", marker=mark, hoverinfo="skip")]


def _sides(plane: Plane) -> dict[str, Any]:
    side: dict[str, Any] = {"title": {"text": "L2 distance"}, "showgrid": False, "constrain": "domain"}
    named = {"showarrow": False, "yshift": 18, "font": {"color": WHITE, "size": 12}, "bgcolor": "rgba(0,0,0,0.65)"}
    corners = [{"x": each.x, "y": each.y, "text": plain(each.label), "borderpad": 3} for each in plane.corners]
    sides = {"xaxis": {**side, "range": [plane.xs[0], plane.xs[-1]]}, "hovermode": "closest"}
    sides |= {"yaxis": {**side, "range": [plane.ys[0], plane.ys[-1]], "scaleanchor": "x"}}
    return sides | {"annotations": [each | named for each in corners]}
