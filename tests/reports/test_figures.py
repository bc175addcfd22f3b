"""Figures: files that are readable in print, with the numbers of the records, and what is refused."""

import dataclasses
import functools
import itertools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import made_runs
import made_shifts
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from matplotlib.text import Text
from page_cases import LABELS, METRICS, SEEDS, Recorded, deviation, is_ensemble, is_middle, is_pair, is_point
from PIL import Image

from subspaces.errors import UserError
from subspaces.evaluation.comparing import groups_of
from subspaces.evaluation.curves import described
from subspaces.evaluation.evaluation import Evaluation
from subspaces.experiments.opening import opened
from subspaces.reports import figures, series
from subspaces.reports.figures import style

NAMES = tuple(LABELS)
Made = dict[str, list[Path]]
FIT = {  # runs that a figure can be drawn of
    "along": ("standard", "line", "curve", "simplex3"),
    "betas": ("standard", "line", "line-beta0", "line-beta0.1", "curve"),
    "plane": ("line",),
    "training": ("standard", "line", "line-beta0"),
    "vertices": ("standard", "line", "simplex2", "simplex3"),
    "reliability": ("line",),
    "shift": ("standard", "line"),
    "shift-along": ("standard", "line"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    found = made_runs.family(tmp_path_factory.mktemp("runs"), seeds=(0, 1))
    for folder in folders(found, *FIT["shift"]):
        made_shifts.add_to(folder)
    return found


@pytest.fixture(scope="module")
def drawn(made: Made) -> Callable[[str], Figure]:
    """Draw each figure once."""
    return functools.cache(lambda name: draw_these(name, folders(made, *FIT[name])))


def folders(made: Made, *names: str) -> list[Path]:
    return [folder for name in names for folder in made[name]]


def draw_these(name: str, sources, **options) -> Figure:
    return figures.draw(name, opened(sources, alike=name in figures.KINDS and figures.find(name).evaluated), **options)


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def changed(folder: Path, to: Path, **fields) -> Path:
    """Copy a run with another evaluation."""
    shutil.copytree(folder, to)
    dataclasses.replace(Evaluation.load(folder), **fields).save(to)
    return to


# What all figures have in common


def test_files_are_what_their_endings_say_and_the_same_every_time(made, tmp_path: Path):
    figure = draw_these("along", made["line"])
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "red", "pdf.fonttype": 3, "savefig.dpi": 50}):
        again = draw_these("along", made["line"])  # nor does it depend on the user's style
        for ending in (".pdf", ".png"):  # whichever is written first
            figures.save(again, tmp_path / f"b{ending}")
    for ending in figures.FORMATS:
        figures.save(figure, tmp_path / f"a{ending}")
        assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()
    with Image.open(tmp_path / "a.png") as image:
        assert (image.format, image.size) == ("PNG", tuple((300 * figure.get_size_inches()).astype(int)))
    assert b"/FontFile2" in (tmp_path / "a.pdf").read_bytes()  # TrueType, embedded


@pytest.mark.parametrize("name", FIT)
def test_figures_are_readable_in_print_and_say_what_they_are_of(name, drawn):
    figure = drawn(name)
    width, height = figure.get_size_inches()
    assert width <= style.PAGE
    assert all(text.get_fontsize() >= 8 for text in figure.findobj(Text) if text.get_text())
    extent = figure.get_tightbbox()
    assert extent.x0 > -0.02 < extent.y0
    assert (extent.x1, extent.y1) < (width + 0.02, height + 0.02)
    shown = [axes for axes in figure.axes if axes.axison]
    texts = [text for axes in shown for text in (axes._left_title, axes.xaxis.label, axes.yaxis.label)]
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    for legend in figure.legends:  # outside of the data, and whole
        frame = legend.get_window_extent()
        assert not any(frame.overlaps(axes.get_window_extent()) for axes in figure.axes)
        assert figure._suptitle is None or not frame.overlaps(figure._suptitle.get_window_extent())
    text = " ".join(words(figure))
    assert "digits, 40 % label noise · mlp" in text
    assert name == "training" or "test set" in text
    assert name == "plane" or "mean ± standard deviation over 2 seeds" in text
    assert figures.KINDS[name].description.endswith(".")


def test_every_figure_is_tested_and_one_seed_is_said(made):
    assert list(figures.KINDS) == list(FIT)
    assert "one seed" in words(draw_these("reliability", made["line"][:1]))


# Some figures against the records


def test_training_needs_no_evaluation_and_single_networks_have_no_distance(made, tmp_path: Path):
    for name in ("line", "standard"):
        shutil.copytree(made[name][0], tmp_path / name, ignore=shutil.ignore_patterns("evaluation.json"))
    l2, cos2 = draw_these("training", [tmp_path / "line", tmp_path / "standard"]).axes
    assert (len(l2.lines), len(cos2.lines)) == (1, 1)


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
    figure = draw_these("along", recorded.folders, metric="nll", split="validation")
    (axes,) = figure.axes
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("NLL", "α")
    assert axes.get_title(loc="left") == "digits, 40 % label noise · mlp · validation set"
    assert labels(figure) == ["standard", "line", "curve", "simplex (m = 3): midpoint"]
    assert labels(figure, 0) == ["network at α", "ensemble of α and 1−α"]
    logged = draw_these("training", recorded.folders)
    assert [axes.get_ylabel() for axes in logged.axes] == ["L2 distance", "cos²"]
    assert labels(logged) == [LABELS[name] for name in NAMES[1:]]


# Planes


def test_planes_are_drawn_the_right_way_round(recorded: Recorded):
    figure = draw_these("plane", [recorded.runs["line"][1], recorded.runs["line"][0]], split="validation")
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
        ends = (plane.xs[0], plane.xs[-1], plane.ys[0], plane.ys[-1])
        assert (*axes.get_xlim(), *axes.get_ylim()) == pytest.approx(ends)
        path, diamond, *corners = axes.lines
        for line, drawn in zip((path, diamond), plane.drawn, strict=True):
            assert (list(line.get_xdata()), list(line.get_ydata())) == (drawn.x, drawn.y)
        places = [(*line.get_xdata(), *line.get_ydata()) for line in corners]
        assert places == [(corner.x, corner.y) for corner in plane.corners]
        off = plane.drawn[0].distance[1] > 0.01 * (plane.xs[-1] - plane.xs[0])
        assert path.is_dashed() is off is (diamond.get_markerfacecolor() == "none")


# Vertices, reliability


def test_the_number_of_vertices(recorded: Recorded):
    figure = draw_these("vertices", recorded.folders, split="validation")
    for metric, axes in zip(("accuracy", "ece"), figure.axes, strict=True):
        for name, vertices, bars in zip(NAMES, (1, 2, 3, 3), axes.containers, strict=True):
            values = 100 * recorded.each(name, is_middle, "validation")[:, 0, list(METRICS).index(metric)]
            drawn, caps, _ = bars.lines
            assert drawn.get_xdata() == pytest.approx([vertices], abs=0.08)
            ends = [float(one.get_ydata()[0]) for one in (drawn, *caps)]
            assert ends == pytest.approx([values.mean() + sign * deviation(values) for sign in (0, -1, 1)])
            if name == "standard":
                assert axes.lines[0].get_ydata() == pytest.approx([values.mean()] * 2)


def answers_of(recorded: Recorded, split: str):
    """Return label and rows of every seed of what predicts."""
    for name in NAMES:
        pair = is_ensemble("vertex") if name == "simplex" else is_pair(0.1, "probabilities")
        word = "ensemble of 3 vertices" if name == "simplex" else "ensemble of 0.1 and 0.9"
        kinds = {"": is_point} if name == "standard" else {": midpoint": is_middle, f": {word}": pair}
        for words, wanted in kinds.items():
            yield f"{LABELS[name]}{words}", [recorded.rows(name, seed, wanted, split)[0] for seed in SEEDS]


def test_reliability_diagrams(recorded: Recorded):
    figure = draw_these("reliability", recorded.folders, split="validation")
    above = [axes for axes in figure.axes if axes.get_title(loc="left")]
    below = [axes for axes in figure.axes if axes.get_xlabel() == "confidence (%)"]
    for axes, shares, (label, rows) in zip(above, below, answers_of(recorded, "validation"), strict=True):
        tables = [{name: np.array(each, float) for name, each in vars(row.reliability).items()} for row in rows]
        count = sum(table["count"] for table in tables)
        right, sure = (
            100 * sum(np.nan_to_num(table["count"] * table[name]) for table in tables) / np.maximum(count, 1)
            for name in ("accuracy", "confidence")
        )
        expected = [*zip(0 * right, right, strict=True), *zip(right, sure - right, strict=True)]
        assert np.allclose([(bar.get_y(), bar.get_height()) for bar in axes.patches], expected)
        assert [bar.get_x() for bar in axes.patches[:20]] == pytest.approx(5 * np.arange(20))
        assert [bar.get_height() for bar in shares.patches] == pytest.approx(100 * count / count.sum())
        errors = np.array([100 * row.metrics["ece"] for row in rows])
        title = " ".join(axes.get_title(loc="left").split())
        assert title == f"{label} ECE {errors.mean():.1f} ± {deviation(errors):.1f} %"


# What is refused


@pytest.mark.parametrize(
    ("name", "runs", "options", "error", "message"),
    [
        ("alnog", ["line"], {}, ValueError, r"no figure 'alnog': did you mean 'along'\? \(figures: along, betas, "),
        ("along", ["simplex3", "standard"], {}, UserError, "no line or curve among the runs: there is no α"),
        ("along", ["line"], {"metric": "acuracy"}, ValueError, "metric='acuracy': did you mean 'accuracy'"),
        ("along", ["line"], {"split": "validation"}, UserError, "was not evaluated on 'validation'"),
        ("betas", ["line", "curve"], {}, UserError, "several β among the runs: .* differ in β alone"),
        ("plane", ["standard"], {}, UserError, "no plane on 'test' among the runs: `subspaces evaluate RUN --plane`"),
        ("plane", ["line"], {"metric": "ece"}, ValueError, "metric='ece' was not measured on planes"),
        ("training", ["standard"], {}, UserError, "only single networks among the runs"),
        ("vertices", ["simplex3"], {}, UserError, "all runs have m = 3"),
        ("reliability", ["line"], {"metric": "ece"}, ValueError, "'reliability' has no choice of a metric"),
    ],
)
def test_what_cannot_be_drawn_is_refused(name, runs, options, error, message, made):
    with pytest.raises(error, match=message) as caught:
        draw_these(name, folders(made, *runs), **options)
    assert "\n" not in str(caught.value)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert figures.outputs("along") == [Path("along.png"), Path("along.pdf")]
    Path("d.png").mkdir()
    for out in ("a.jpg", "x/a.png", "d.png"):
        with pytest.raises(ValueError, match=f"{out}: expected a name that ends in .png or .pdf"):
            figures.outputs("along", out)


def test_without_matplotlib_it_is_said_how_to_get_it(made, monkeypatch: pytest.MonkeyPatch):
    for module in [name for name in sys.modules if name.startswith("subspaces.reports.figures.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"figures need matplotlib: pip install 'subspaces\[figures\]'"):
        draw_these("along", made["line"])
