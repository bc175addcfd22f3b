"""Figures: files that are what their endings say, readable in print, and what is refused."""

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
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from subspaces.errors import UserError
from subspaces.evaluation.evaluation import Evaluation
from subspaces.experiments.opening import opened
from subspaces.reports import figures
from subspaces.reports.figures import style

Made = dict[str, list[Path]]
FIT = {  # runs that a figure can be drawn of
    "along": ("standard", "line", "curve", "simplex3"),
    "betas": ("standard", "line", "line-beta0", "line-beta0.1", "curve"),
    "plane": ("line",),
    "training": ("standard", "line", "line-beta0"),
    "vertices": ("standard", "line", "simplex2", "simplex3"),
    "reliability": ("line",),
    "diversity": ("standard", "line", "curve", "simplex3"),
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


def test_files_are_what_their_endings_say_and_the_same_every_time(made, drawn, tmp_path: Path):
    figure = drawn("along")
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "red", "pdf.fonttype": 3, "savefig.dpi": 50}):
        again = draw_these("along", folders(made, *FIT["along"]))  # nor does it depend on the user's style
        for ending in (".pdf", ".png"):  # whichever is written first
            figures.save(again, tmp_path / f"b{ending}")
    for ending in figures.FORMATS:
        figures.save(figure, tmp_path / f"a{ending}")
        assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()
    with Image.open(tmp_path / "a.png") as image:
        assert (image.format, image.size) == ("PNG", tuple((300 * figure.get_size_inches()).astype(int)))
    content = (tmp_path / "a.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert b"/FontFile2" in content  # TrueType, embedded
    assert b"/Type3" not in content
    assert b"CreationDate" not in content


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


def test_groups_are_told_apart_without_colour():
    looks = style.looks_of([True] * 20 + [False] * 10)
    assert len({(look.marker, look.hollow) for look in looks[:11] + looks[20:]}) == 21
    assert len({(look.marker, look.hollow, look.line) for look in looks}) == len(looks)
    assert [style.key(look, "").get_markerfacecolor() == "white" for look in looks] == [look.hollow for look in looks]


@pytest.mark.parametrize(("label", "columns"), [("short", 3), ("a label of medium length", 1), ("very long " * 9, 1)])
def test_a_legend_that_is_too_wide_takes_fewer_columns_or_more_lines(label, columns):
    with style.styled():
        figure = style.blank(style.COLUMN, 1)
        made = style.legend(figure, [style.key(style.Look("black", "o"), label) for _ in range(3)], 3)
    assert made._ncols == columns
    assert made.get_window_extent().width <= style.COLUMN * figure.dpi
    assert figure.legends == [made]


@pytest.mark.parametrize("name", ["reliability", "diversity"])
def test_long_labels_leave_room_for_the_drawing(name, tmp_path: Path):
    more = {"network": "tests.networks:a_small_network_with_a_long_name", "label_smoothing": 0.1, "weight_decay": 0.5}
    runs = [made_runs.run(tmp_path, method, planes=False) for method in ("standard", "line", "simplex")]
    runs += [made_runs.run(tmp_path, method, planes=False, seed=1, **more) for method in ("standard", "line")]
    figure = draw_these(name, runs)  # a warning of matplotlib, that nothing was laid out, is an error here
    with style.styled():
        boxes = [(axes.get_window_extent(), axes.get_tightbbox()) for axes in figure.axes if axes.axison]
    for inner, outer in boxes:
        assert inner.width > 0.14 * figure.bbox.width
        assert figure.bbox.x0 - 1 <= outer.x0
        assert outer.x1 <= figure.bbox.x1 + 1


# Some figures against the records


def test_labels_of_corners_lie_inside_and_apart(made, tmp_path: Path):
    (old,) = Evaluation.load(made["line"][0]).planes
    names = ("α = 0", "digits-standard seed 1", "digits-line seed 0 at 0.5")
    corners = [dataclasses.replace(corner, label=label) for corner, label in zip(old.corners, names, strict=True)]
    folder = changed(made["line"][0], tmp_path / "run", planes=[dataclasses.replace(old, corners=corners)])
    figure = draw_these("plane", [folder], metric="accuracy")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["α = 0", "standard\nseed 1", "line\nseed 0 at 0.5"]
    frame = axes.get_window_extent()
    boxes = [text.get_window_extent(figure.canvas.get_renderer()) for text in axes.texts]
    assert all(frame.containsx(x) and frame.containsy(y) for box in boxes for x, y in box.corners())
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert axes.get_window_extent().width > 0.6 * figure.get_window_extent().width  # names do not make it small


def test_training_needs_no_evaluation_and_single_networks_have_no_distance(made, tmp_path: Path):
    for name in ("line", "standard"):
        shutil.copytree(made[name][0], tmp_path / name, ignore=shutil.ignore_patterns("evaluation.json"))
    l2, cos2 = draw_these("training", [tmp_path / "line", tmp_path / "standard"]).axes
    assert (len(l2.lines), len(cos2.lines)) == (1, 1)


def test_methods_that_are_ensembles_are_drawn_as_such(made, tmp_path: Path):
    methods = {"swa-cyclic": "average", "swag": "ensemble", "snapshot": "ensemble"}
    counted = [made_runs.run(tmp_path, name, planes=False, vertices=3, epochs=30) for name in methods]
    figure = draw_these("vertices", [made["standard"][0], *counted])
    assert dict(text.get_text().split(": ") for text in figure.legends[0].get_texts()[1:]) == methods
    assert figure.axes[-1].get_xlabel() == "number of vertices or members m"


def test_diversity_is_of_the_ends_also_where_the_grid_goes_beyond_them(made, tmp_path: Path):
    folder = made["line"][0]
    rows = Evaluation.load(folder).rows
    ends = next(row for row in rows if row.alphas == [0.0, 1.0] and row.average == "probabilities" and not row.group)
    beyond = dataclasses.replace(ends, alphas=[-0.2, 1.2], diversity={**ends.diversity, "tv": 0.9})
    wide = changed(folder, tmp_path / "wide", rows=[beyond, *rows])
    only, *_ = draw_these("diversity", [wide]).axes
    assert only.patches[0].get_width() == pytest.approx(ends.diversity["tv"])
    narrow = changed(folder, tmp_path / "narrow", rows=[row for row in rows if 0.0 not in row.alphas])
    with pytest.raises(UserError, match="has no tv of its ends on 'test': run `subspaces evaluate"):
        draw_these("diversity", [narrow])


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
        ("training", ["line"], {"metric": "loss"}, ValueError, "'training' has no choice of a metric"),
        ("vertices", ["simplex3"], {}, UserError, "all runs have m = 3"),
        ("reliability", ["line"], {"metric": "ece"}, ValueError, "'reliability' has no choice of a metric"),
        ("diversity", ["standard"], {}, UserError, "only single networks among the runs"),
    ],
)
def test_what_cannot_be_drawn_is_refused(name, runs, options, error, message, made):
    with pytest.raises(error, match=message) as caught:
        draw_these(name, folders(made, *runs), **options)
    assert "\n" not in str(caught.value)


def test_a_plane_that_was_not_computed_yet_is_not_drawn(made, tmp_path: Path):
    (old,) = Evaluation.load(made["line"][0]).planes
    empty = dataclasses.replace(old, values=dict.fromkeys(("accuracy", "nll"), [[None] * 13] * 13))
    folder = changed(made["line"][0], tmp_path / "run", planes=[empty])
    with pytest.raises(UserError, match="no plane on 'test'"):
        draw_these("plane", [folder])


def test_files(drawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
