"""The charts of the page as plotly figures in the colours of the light theme, one for each choice of its selects."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from plotly import graph_objects as go

from subspaces.evaluation.comparing import Group
from subspaces.evaluation.curves import Curve, described
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.group_answers import each_answer
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.rows import Row
from subspaces.evaluation.statistics import spread
from subspaces.reports import series
from subspaces.reports.page.content import Page, better, capital, rounded, unit
from subspaces.reports.page.tables import CHANGE, Shifted, head, severity_name
from subspaces.reports.page.walk import ensemble_name, middle, shown_rows, vertex
from subspaces.reports.series import Series
from subspaces.reports.table import Table

LIGHT = ("#0072b2", "#c44e00", "#00785a", "#a8327d", "#7a6200", "#4b4f57")  # told apart by colour-blind readers
DARK = ("#56b4e9", "#f0a04b", "#3ccf9f", "#e79ac8", "#e8dc5a", "#c3c8d0")
TEXT, MUTED, GRID, GROUND = "#1b1e24", "#59606b", "#e4e7eb", "#ffffff"
THEME = {**dict(zip(LIGHT, DARK, strict=True)), TEXT: "#e6e8ec", MUTED: "#a3abb8", GRID: "#2d323b", GROUND: "#1e2127"}
"""What each colour is in the dark theme."""
CLEAR = "rgba(0,0,0,0)"
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
LEVELS = {"network": "dot", "midpoint": "dashdot", "dropout": "dash", "random": "longdashdot"}
RISKS = {"network": "dot", "midpoint": "dash", "average": "dash"}
SHARE = Metric("share", "", "", percent=True)


@dataclass(frozen=True)
class Chart:
    """Figures for every choice of some selects, by the numbers of the options."""

    label: str
    states: dict[str, dict[str, Any]]
    selects: list[tuple[str, str, list[str]]] = field(default_factory=list)  # name, label and options
    numbers: Table | None = None
    height: float | None = None  # in rem
    plots: tuple[str, ...] = ()  # what each of several beside each other is


def charts(page: Page, shifted: Shifted) -> dict[str, Chart]:
    """Return all charts by the section that they stand in."""
    made = {"along": _along(page), "roles": _roles(page), "training": _training(page)}
    made |= {"selective": _selective(page), "shift": _shift(shifted)}
    return {name: chart for name, chart in made.items() if chart is not None}


def template() -> dict[str, Any]:
    """Return what all charts have in common."""
    side: dict[str, Any] = {"gridcolor": GRID, "linecolor": MUTED, "tickcolor": GRID, "showline": True}
    side |= {"zeroline": False, "automargin": True, "tickfont": {"size": 12, "color": MUTED}}
    side |= {"title": {"standoff": 10, "font": {"size": 13, "color": MUTED}}}
    made: dict[str, Any] = {"font": {"family": "system-ui, sans-serif", "size": 13, "color": TEXT}}
    made |= {"showlegend": False, "hovermode": "x unified", "xaxis": side, "yaxis": side}
    made |= {"paper_bgcolor": CLEAR, "plot_bgcolor": CLEAR, "margin": {"l": 56, "r": 12, "t": 28, "b": 46}}
    made |= {"hoverlabel": {"bgcolor": GROUND, "bordercolor": MUTED, "font": {"color": TEXT}}}
    return made | {"modebar": {"bgcolor": CLEAR, "color": MUTED, "activecolor": TEXT}}


def state(caption: str, *plots: tuple[list[Any], dict[str, Any]]) -> dict[str, Any]:
    """Return traces and layout of each plot, and what is said below, as plain data."""
    made = [
        {"data": [trace.to_plotly_json() for trace in traces], "layout": go.Layout(layout).to_plotly_json()}
        for traces, layout in plots
    ]
    return {"caption": caption, "plots": rounded(made)}


def plain(text: str) -> str:
    """Return text in which plotly sees no markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _colour(index: int) -> str:
    return LIGHT[index % len(LIGHT)]


def _symbol(index: int) -> str:
    """Return the marker of a group; where colours come again the pair is another one."""
    return SYMBOLS[(index + index // len(SYMBOLS)) % len(SYMBOLS)]


def axis(metric: Metric) -> str:
    """Return the title of an axis."""
    return capital(metric.label) + (" (%)" if metric.percent else "")


def _line(one: Series, form: str, suffix: str = "", dash: str = "solid", band: bool = True) -> list[Any]:
    """Return the mean over seeds, with a band of one standard deviation where there are several."""
    curve, paint, several = one.curve, _colour(one.group), len(one.curve.values) > 1
    x, mean, std = curve.grid.tolist(), curve.mean, curve.std
    around = f" ± %{{customdata:{form}}}" * several
    line = go.Scatter(x=x, y=mean.tolist(), name=plain(one.label), legendgroup=one.label, mode="lines")
    line.update(line_color=paint, line_dash=dash, line_width=2, customdata=std.tolist() if several else None)
    line.update(marker_color=paint, marker_size=6)
    line.update(hovertemplate=f"%{{y:{form}}}{around}{suffix}<extra>%{{fullData.name}}</extra>")
    if one.kind in ("points", "pairs"):
        line.update(mode="lines+markers", marker_symbol=_symbol(one.group))
    if not several or not band:
        return [line]
    edges = go.Scatter(x=x + x[::-1], y=[*(mean + std).tolist(), *(mean - std)[::-1].tolist()], mode="lines")
    edges.update(line_width=0, fill="toself", fillcolor=paint, opacity=0.12, hoverinfo="skip")
    return [edges.update(legendgroup=one.label, showlegend=False), line]


def _numbers(caption: str, names: list[str], columns: Iterable[tuple[list[Series], str]], form: str = ".3g") -> Table:
    """Return lines as a table: what and where, and mean ± standard deviation in a column for each list of lines."""
    every = list(columns)
    rows = [
        [one.label, format(place, form)]
        + [_text(lines[number].curve.values[:, at].tolist(), digits) for lines, digits in every]
        for number, one in enumerate(every[0][0])
        for at, place in enumerate(one.curve.grid)
        if one.kind != "pairs" or place <= 0.5  # which are those above, too
    ]
    return Table(caption, names, rows)


def _text(values: list[float], digits: str) -> str:
    found = spread(values)
    return f"{found.mean:{digits}}" + ("" if found.std is None else f" ± {found.std:{digits}}")


def _metric_select(page: Page) -> tuple[str, str, list[str]]:
    return "along-metric", "Metric", [capital(each.label) for each in page.metrics]


# Along lines and curves, and at the points of simplexes


def _along(page: Page) -> Chart | None:
    """Return a metric along lines and curves, and as levels where there is no alpha; None without any of these."""
    intervals = [group for group in page.groups if group.interval]
    if not intervals:
        return None
    averages = list(dict.fromkeys(each for group in intervals for each in series.averages(group, page.split)))
    several = ". Bands: one standard deviation over seeds" * any(len(each.evaluations) > 1 for each in intervals)
    others = [group for group in page.groups if not group.interval]
    levels = [one for group in others for one in each_answer(group, page.split, together=True)]
    states: dict[str, Any] = {}
    columns: list[tuple[list[Series], str]] = []
    for at, metric in enumerate(page.metrics):
        form, column = f".{page.places(metric)}f", []
        caption = f"{capital(metric.label)}: {metric.meaning}{better(metric)}{several}."
        layout = {"xaxis_title_text": "α", "xaxis_hoverformat": ".3~g", "yaxis_title_text": axis(metric)}
        for number, average in enumerate(averages or [""]):
            found = series.along(page.groups, metric, page.split, average, levels)
            traces = [trace for one in found for trace in _along_line(one, found, form, unit(metric))]
            states[f"{at}|{number}" if len(averages) > 1 else f"{at}"] = state(caption, (traces, layout))
            how = f", mean of {average}" * (len(averages) > 1)
            column += [replace(one, label=one.label + how) for one in found if one.kind == "pairs"]
            column += [one for one in found if one.kind == "points" and not number]
        columns.append((sorted(column, key=lambda one: (one.group, one.kind != "points")), form))
    more = [("along-average", "Ensembles average", averages)] if len(averages) > 1 else []
    table = _numbers(f"Along the subspace, {page.split} split", ["Answer", "α", *head(page.metrics)], columns)
    return Chart("a metric along the subspace", states, [_metric_select(page), *more], table)


def _along_line(one: Series, every: list[Series], form: str, suffix: str) -> list[Any]:
    if one.answer is None:
        return _line(one, form, suffix, "dash" if one.kind == "points" else "solid")
    grid = np.unique(np.concatenate([each.curve.grid for each in every if each.kind == "points"]))
    level = replace(one, curve=Curve(grid, np.repeat(one.curve.values, len(grid), axis=1)))
    traces = _line(level, form, suffix, LEVELS.get(one.answer.kind, "longdash"), band=False)
    return [trace.update(visible="legendonly" if one.answer.kind == "random" else True) for trace in traces]


def _roles(page: Page) -> Chart | None:
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
            marks.update(name=plain(label), legendgroup=label, text=[plain(name) for _, name, _ in mine])
            marks.update(marker_color=_colour(index), marker_symbol=f"{_symbol(index)}-open", marker_size=9)
            said = f"%{{text}}: %{{x:.{page.places(metric)}f}}{unit(metric)}<extra>%{{fullData.name}}</extra>"
            traces.append(marks.update(marker_line_width=1.6, hovertemplate=said))
        caption = f"{capital(metric.label)} of every run: of single networks by where they are, then of ensembles."
        states[str(at)] = state(caption, (traces, layout | {"xaxis_title_text": axis(metric)}))
    numbers = [
        [page.groups[at].label, name, *(page.shown(found.get(each.name), each) for each in page.metrics)]
        for at, name, found in rows
    ]
    table = Table(f"Measured points, {page.split} split", ["Method", "Point", *head(page.metrics)], numbers)
    height = max(16, 5 + 2.2 * len(names))
    return Chart("a metric at measured points", states, [_metric_select(page)], table, height)


def _kind(group: Group, one: Evaluation, row: Row) -> str:
    if row.kind == "ensemble":
        return ensemble_name(one, row)
    return {"vertex": vertex(group), "midpoint": middle(group, one)}.get(row.role, row.role)


# Over the epochs, and over the coverage


def _training(page: Page) -> Chart | None:
    """Return how far apart the vertices are over the epochs; None where no log has it."""
    parts = [described(name) for name in series.LOGGED]
    found = [series.logged(page.groups, part) for part in parts]
    if not found[0]:
        return None
    layout = {"xaxis_title_text": "Epoch", "yaxis_rangemode": "tozero"}
    plots = [
        ([trace for one in lines for trace in _line(one, ".4~g")], layout | {"yaxis_title_text": part.label})
        for part, lines in zip(parts, found, strict=True)
    ]
    several = any(len(one.curve.values) > 1 for one in found[0])
    names, labels = ["Subspace", "Epoch"], [part.label for part in parts]
    table = _numbers("The vertices over the epochs", names + labels, [(lines, ".4g") for lines in found], "g")
    made = state("Bands: one standard deviation over seeds." * several, *plots)
    beside = tuple(f"{label} of the vertices over the epochs" for label in labels)
    return Chart("the vertices over the epochs", {"": made}, numbers=table, plots=beside)


def _selective(page: Page) -> Chart | None:
    """Return the error over the coverage; None where nothing has one."""
    found = [
        replace(one, curve=Curve(one.curve.grid, one.curve.mean[None]))
        for one in series.selective(page.groups, page.split)
    ]
    if not found:
        return None
    form = f".{page.places(SHARE)}f"
    dashes = {one.label: RISKS.get(one.answer.short, "solid") for one in found if one.answer}
    traces = [trace for one in found for trace in _line(one, form, " %", dashes[one.label])]
    layout: dict[str, Any] = {"xaxis_title_text": "Most confident answers kept (%)", "xaxis_range": [0, 101]}
    layout |= {"xaxis_hoverformat": ".1f", "yaxis_title_text": "Error among them (%)", "yaxis_rangemode": "tozero"}
    caption = "AURC, in the tables, is the mean height of such a curve. Mean over seeds where there are several."
    names = ["Answer", "Coverage\u00a0%", "Error\u00a0%"]
    table = _numbers(f"Risk over coverage, {page.split} split", names, [(found, ".1f")], ".1f")
    return Chart("risk over coverage", {"": state(caption, (traces, layout))}, numbers=table)


# Shifted data


def _shift(shifted: Shifted) -> Chart | None:
    """Return a metric by kind and severity of shifted data, or its relative change; None where there are none."""
    page, states = shifted.page, {}
    names = [plain(each.label) for each in shifted.found]
    strengths = [severity_name(each) for each in shifted.severities]
    layout: dict[str, Any] = {"xaxis_title_text": "Severity", "yaxis_range": [len(names) - 0.5, -0.5]}
    layout |= {f"{side}_type": "category" for side in ("xaxis", "yaxis")} | {"hovermode": "closest"}
    layout |= {f"{side}_showgrid": False for side in ("xaxis", "yaxis")}
    for number, answer in enumerate(one.before for one in shifted.answers):
        every = [found.get(answer.words) for _, _, found in shifted.cells[answer.group.label]]
        for at, metric in enumerate(shifted.metrics):
            for kind, known in enumerate((metric, CHANGE)):
                values = [one and (one.spread(metric.name) if kind else one.after.spread(metric.name)) for one in every]
                digits = 1 if kind else page.places(metric)
                form = f":{'+' * kind}.{digits}f"
                z = np.array([known.scale * one.mean if one else math.nan for one in values])
                stds = [one.std if one else None for one in values]
                around = ["" if std is None else f" ± {known.scale * std:.{digits}f}" for std in stds]
                shape = len(names), len(strengths)
                heat = go.Heatmap(x=strengths, y=names, z=z.reshape(shape).tolist(), xgap=2, ygap=2, hoverongaps=False)
                heat.update(customdata=np.array(around).reshape(shape).tolist(), texttemplate=f"%{{z{form}}}")
                heat.update(colorscale="Cividis", reversescale=metric.lower_is_better, textfont_size=12)
                heat.update(colorbar_thickness=14, colorbar_outlinewidth=0, colorbar_tickfont_color=MUTED)
                said = f"%{{y}}, severity %{{x}}: %{{z{form}}}%{{customdata}}{unit(known)}<extra></extra>"
                what = f"Relative change of {capital(metric.label)} in %" if kind else axis(metric)
                caption = f"{answer.label}: {what}.{' Brighter is better.' * (metric.goal is None)}"
                states[f"{number}|{at}|{kind}"] = state(caption, ([heat.update(hovertemplate=said)], layout))
    selects = [
        ("shift-answer", "Answer", [one.before.label for one in shifted.answers]),
        ("shift-metric", "Metric", [capital(each.label) for each in shifted.metrics]),
        ("shift-show", "Show", ["values", "relative change"]),
    ]
    label = "a metric by kind and severity of shifted data"
    return Chart(label, states, selects, shifted.numbers(), 8 + 1.8 * len(names)) if states else None
