"""The planes of the page: contours of a metric, with the subspace and the networks that the plane goes through."""

from typing import Any

import numpy as np
from plotly import graph_objects as go

from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import Metric
from subspaces.evaluation.plane import begun
from subspaces.evaluation.rows import Plane
from subspaces.reports.page.charts import MUTED, Chart, axis, plain, state
from subspaces.reports.page.content import Page, capital, trained_on, unit
from subspaces.reports.page.walk import run_name

WHITE, BLACK = "rgb(255,255,255)", "rgb(0,0,0)"  # in both themes


def planes(page: Page) -> Chart | None:
    """Return the planes through three networks with a metric as height; None where there are none."""
    every = [(group, one, plane) for group, one in page.evaluations for plane in one.planes if begun(plane)]
    every.sort(key=lambda each: each[0].single)
    metrics = [each for each in page.metrics if all(each.name in plane.values for _, _, plane in every)]
    states = {
        f"{number}|{at}": state(
            _plane_caption(page, one, plane, metric),
            ([_surface(page, plane, metric), *_drawn_in(plane)], _sides(plane)),
        )
        for number, (_, one, plane) in enumerate(every)
        for at, metric in enumerate(metrics)
    }
    selects = [
        ("planes-plane", "Plane", [f"{run_name(group, one)}: {plane.name}" for group, one, plane in every]),
        ("planes-metric", "Height", [capital(each.label) for each in metrics]),
    ]
    return Chart("the plane", states, selects) if states else None


def _surface(page: Page, plane: Plane, metric: Metric) -> Any:
    z = metric.scale * np.array(plane.values[metric.name], float)
    known = np.sort(z[np.isfinite(z)])
    low, high, median = float(known[0]), float(known[-1]), float(known[len(known) // 2])
    top = min(high, max(4 * low, median)) if metric.lower_is_better else high  # far off, the loss knows no bounds
    made = go.Contour(x=plane.xs, y=plane.ys, z=z.tolist(), zauto=False, zmin=low, zmax=top, ncontours=16)
    made.update(colorscale="Cividis", reversescale=metric.lower_is_better, contours_coloring="heatmap")
    made.update(line_width=0.6, line_color="rgba(255,255,255,0.35)", colorbar_title_font_color=MUTED)
    made.update(colorbar_title_text=axis(metric), colorbar_title_side="right", colorbar_title_font_size=13)
    made.update(colorbar_thickness=14, colorbar_outlinewidth=0, colorbar_tickfont_color=MUTED)
    return made.update(hovertemplate=f"%{{z:.{page.places(metric)}f}}{unit(metric)}<extra></extra>")


def _drawn_in(plane: Plane) -> list[Any]:
    """Return the subspaces and the corners in a plane."""
    found: list[Any] = []
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


def _sides(plane: Plane) -> dict[str, Any]:
    """Return axes of one scale, and the names of the corners."""
    ratio = (plane.ys[-1] - plane.ys[0]) / (plane.xs[-1] - plane.xs[0])
    side: dict[str, Any] = {"title": {"text": "L2 distance"}, "showgrid": False, "constrain": "domain"}
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


def _plane_caption(page: Page, one: Evaluation, plane: Plane, metric: Metric) -> str:
    missing = any(value is None for line in plane.values[metric.name] for value in line)
    return (
        f"{capital(metric.label)} on {len(plane.xs)} × {len(plane.ys)} cells; {plane.split} split, {plane.count:,} "
        f"{page.what}; batch-norm statistics of {plane.statistics_images:,} training {trained_on(one)} in every cell."
        f"{' Some cells are not computed yet.' * missing}"
    )
