"""Lines, bands, bars and legends of figures are worked out anew from records and logs, on both splits."""

import dataclasses
from pathlib import Path

import made_runs
import numpy as np
import pytest
from matplotlib.contour import QuadContourSet
from page_cases import LABELS, METRICS, SEEDS, Recorded, deviation, is_ensemble, is_middle, is_pair, is_point

from subspaces.evaluation.comparing import groups_of
from subspaces.evaluation.curves import described
from subspaces.experiments import training
from subspaces.experiments.opening import opened
from subspaces.experiments.training import RECIPES
from subspaces.reports import figures, series
from subspaces.reports.figures import distances

NAMES = tuple(LABELS)


def draw(name: str, folders, **options):
    return figures.draw(name, opened(folders), **options)


def assert_band(axes, at: int, expected: np.ndarray) -> None:
    """Compare a band with the values of every seed [seeds, points]."""
    corners = [one for one in axes.collections if type(one).__name__ == "FillBetweenPolyCollection"][at]
    points = corners.get_paths()[0].vertices
    sides = [points[np.isclose(points[:, 0], x), 1] for x in np.unique(points[:, 0].round(9))]
    assert np.allclose([side.min() for side in sides], expected.mean(0) - deviation(expected))
    assert np.allclose([side.max() for side in sides], expected.mean(0) + deviation(expected))


def labels(figure, at: int = -1) -> list[str]:
    """Return what a legend says; that of methods is the last."""
    return [" ".join(text.get_text().split()) for text in figure.legends[at].get_texts()]


def walked(axes) -> list:
    """Return the lines along alpha."""
    return [line for line in axes.lines if len(line.get_xdata()) == 21]


# Lines: the numbers are those of the series, which the page shows too and where they are compared with the records


@pytest.mark.parametrize("name", ["along", "training"])
def test_lines_and_bands_are_the_series(recorded: Recorded, name: str):
    groups, metric = groups_of(opened(recorded.folders)), {"along": "ece"}.get(name)
    figure = figures.draw_groups(name, groups, metric, "test")
    every = {
        "along": lambda: series.along(groups, described("ece"), "test"),
        "training": lambda: series.logged(groups, described("l2")),
    }[name]()
    axes = figure.axes[0]
    lines = [line for line in axes.lines if len(line.get_xdata()) > 2]
    assert len(lines) == sum(one.kind != "level" for one in every)
    curved = [one for one in every if one.kind != "level"]
    for at, (one, line) in enumerate(zip(curved, lines, strict=True)):
        assert np.allclose([line.get_xdata(), line.get_ydata()], [one.curve.grid, one.curve.mean])
        assert_band(axes, at, one.curve.values)
        assert line.is_dashed() is (one.kind == "points")
    levels = [line for line in axes.lines if list(line.get_xdata()) == [0, 1]]
    for one, level, span in zip((one for one in every if one.kind == "level"), levels, axes.patches, strict=True):
        mean, std = one.curve.mean[0], one.curve.std[0]
        assert np.allclose([*level.get_ydata(), span.get_y(), span.get_height()], [mean, mean, mean - std, 2 * std])


def test_what_the_lines_are_is_said(recorded: Recorded):
    figure = draw("along", recorded.folders, metric="nll", split="validation")
    (axes,) = figure.axes
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("NLL", "α")
    assert axes.get_title(loc="left") == "digits, 40 % label noise · mlp · validation set"
    assert labels(figure) == ["standard", "line", "curve", "simplex (m = 3): midpoint"]
    assert labels(figure, 0) == ["network at α", "ensemble of α and 1−α"]
    handles = dict(zip(labels(figure), figure.legends[1].legend_handles, strict=True))
    assert [handles[name].get_color() for name in ("line", "curve")] == [walked(axes)[k].get_color() for k in (0, 2)]
    logged = draw("training", recorded.folders)
    assert [axes.get_ylabel() for axes in logged.axes] == ["L2 distance", "cos²"]
    assert labels(logged) == [LABELS[name] for name in NAMES[1:]]


def test_strengths_of_the_penalty(recorded: Recorded, tmp_path: Path):
    split = {"splits": {"validation": 60, "test": 120}, "validation": 60}
    weak = [made_runs.run(tmp_path, "line", seed=seed, beta=0.1, **split) for seed in SEEDS]
    figure = draw("betas", [*weak, *recorded.runs["line"], *recorded.runs["standard"]], metric="ece")
    (axes,) = figure.axes
    assert axes.get_ylabel() == "ECE (%)"
    handles = dict(zip(labels(figure), figure.legends[-1].legend_handles, strict=True))
    weaker, stronger = (handles[name].get_color() for name in ("β = 0.1", "β = 1"))
    assert [line.get_color() for line in walked(axes)] == [weaker, weaker, stronger, stronger]
    assert weaker != stronger


# Planes


def test_planes_are_drawn_the_right_way_round(recorded: Recorded):
    figure = draw("plane", [recorded.runs["line"][1], recorded.runs["line"][0]], split="validation")
    planes = [recorded.records["line"][seed].planes[0] for seed in (0, 1)]
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    bars = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    assert [axes.get_title(loc="left") for axes in panels] == ["line, seed 0", "line, seed 1"] * 2
    assert [bar.get_ylabel() for bar in bars] == ["error (%)", "loss (NLL)"]
    errors = [100 - 100 * np.array(plane.values["accuracy"], float) for plane in planes]
    losses = [np.array(plane.values["nll"], float) for plane in planes]
    for axes, plane, cells in zip(panels, planes * 2, (*errors, *losses), strict=True):
        filled = next(one for one in axes.collections if isinstance(one, QuadContourSet))
        assert (filled.zmin, filled.zmax) == pytest.approx((np.nanmin(cells), np.nanmax(cells)))
        row, column = np.unravel_index(np.nanargmin(cells), cells.shape)
        lowest = next(path for path in filled.get_paths() if len(path.vertices))  # levels are those of all panels
        where = (plane.xs[column], plane.ys[row])
        assert any(np.allclose(where, corner, atol=0.2) for corner in lowest.vertices) or lowest.contains_point(where)
        assert (*axes.get_xlim(), *axes.get_ylim()) == pytest.approx(
            (plane.xs[0], plane.xs[-1], plane.ys[0], plane.ys[-1])
        )
        path, diamond, *corners = axes.lines
        for line, drawn in zip((path, diamond), plane.drawn, strict=True):
            assert (list(line.get_xdata()), list(line.get_ydata())) == (drawn.x, drawn.y)
        places = [(*line.get_xdata(), *line.get_ydata()) for line in corners]
        assert places == [(corner.x, corner.y) for corner in plane.corners]
        off = plane.drawn[0].distance[1] > 0.01 * (plane.xs[-1] - plane.xs[0])
        assert path.is_dashed() is off is (diamond.get_markerfacecolor() == "none")


# Vertices, reliability, diversity


def test_the_number_of_vertices(recorded: Recorded):
    split = "validation"
    for metric, axes in zip(("accuracy", "ece"), draw("vertices", recorded.folders, split=split).axes, strict=True):
        at = list(METRICS).index(metric)
        for name, vertices, bars in zip(NAMES, (1, 2, 3, 3), axes.containers, strict=True):
            values = 100 * recorded.each(name, is_middle, split)[:, 0, at]
            drawn, caps, _ = bars.lines
            assert drawn.get_xdata() == pytest.approx([vertices], abs=0.051)
            assert drawn.get_ydata() == pytest.approx([values.mean()])
            ends = [float(cap.get_ydata()[0]) for cap in caps]
            assert ends == pytest.approx([values.mean() - deviation(values), values.mean() + deviation(values)])
        (standard, *_), single = axes.lines, 100 * recorded.each("standard", is_point, split)[:, 0, at]
        assert standard.get_ydata() == pytest.approx([single.mean()] * 2)


def predictors(recorded: Recorded, split: str):
    """Return label and rows of every seed of what predicts."""
    for name in NAMES:
        pair = is_ensemble("vertex") if name == "simplex" else is_pair(0.1, "probabilities")
        word = "ensemble of 3 vertices" if name == "simplex" else "ensemble of 0.1 and 0.9"
        kinds = {"": is_point} if name == "standard" else {": midpoint": is_middle, f": {word}": pair}
        for words, wanted in kinds.items():
            yield f"{LABELS[name]}{words}", [recorded.rows(name, seed, wanted, split)[0] for seed in SEEDS]


def test_reliability_diagrams(recorded: Recorded):
    figure = draw("reliability", recorded.folders, split="validation")
    above = [axes for axes in figure.axes if axes.get_title(loc="left")]
    below = [axes for axes in figure.axes if axes.get_xlabel() == "confidence (%)"]
    for axes, shares, (label, rows) in zip(above, below, predictors(recorded, "validation"), strict=True):
        count = np.array([row.reliability.count for row in rows], float)
        right, sure = (
            100 * (count * np.nan_to_num(np.array(each, float))).sum(0) / np.maximum(count.sum(0), 1)
            for each in ([row.reliability.accuracy for row in rows], [row.reliability.confidence for row in rows])
        )
        bars, gaps = axes.patches[:20], axes.patches[20:]
        assert [bar.get_x() for bar in bars] == pytest.approx(5 * np.arange(20))
        assert [bar.get_height() for bar in bars] == pytest.approx(right)
        assert [(bar.get_y(), bar.get_height()) for bar in gaps] == [
            pytest.approx(e) for e in zip(right, sure - right, strict=True)
        ]
        assert [bar.get_height() for bar in shares.patches] == pytest.approx(100 * count.sum(0) / count.sum())
        errors = np.array([100 * row.metrics["ece"] for row in rows])
        title = " ".join(axes.get_title(loc="left").split())
        assert title == f"{label} ECE {errors.mean():.1f} ± {deviation(errors):.1f} %"


def test_diversity(recorded: Recorded):
    panels = draw("diversity", recorded.folders, split="validation").axes
    words = {"tv": "total variation\npredictions of ends or vertices", "l2": "L2 distance\nweights of vertices"}
    words |= {"cos2": "cos²\nweights of vertices"}
    for axes, (metric, label) in zip(panels, words.items(), strict=True):
        assert axes.get_xlabel() == label
        assert axes.yaxis_inverted()
        for place, (name, bar, text) in enumerate(zip(NAMES[1:], axes.patches, axes.texts, strict=True)):
            values = apart(recorded, name, metric)
            assert bar.get_width() == pytest.approx(values.mean())
            assert bar.get_y() + bar.get_height() / 2 == pytest.approx(place)
            assert text.get_text() == f"{values.mean():.3g}"
            assert text.xy == pytest.approx((values.mean() + deviation(values), place))
    assert [text.get_text() for text in panels[0].get_yticklabels()] == list(LABELS.values())[1:]


def apart(recorded: Recorded, name: str, metric: str) -> np.ndarray:
    """Return how far apart the vertices of each seed are."""
    if metric in ("l2", "cos2"):
        return recorded.logged(name, metric)[:, -1]
    ends = is_ensemble("vertex") if name == "simplex" else is_pair(0.0, "probabilities")
    return np.array([recorded.rows(name, seed, ends, "validation")[0].diversity[metric] for seed in SEEDS])


def test_weights_of_a_finished_run_are_those_of_its_result(tmp_path: Path):
    recipe = dataclasses.replace(RECIPES["digits-snapshot"], epochs=2, vertices=2, batch=256)
    (run,) = training.train([recipe], out=tmp_path, show="quiet", device="cpu", tensorboard=False)
    (group,) = groups_of(opened([run.folder], alike=False))
    for metric in ("l2", "cos2"):
        assert distances.weights(group, metric).tolist() == [run.result[metric]]
    assert run.result["l2"] > 1 > run.result["cos2"]
    assert run.log()[-1]["l2"] != run.result["l2"]  # one network was trained, and two checkpoints kept
