"""Figures of shifted data: bars are planted ratios, and the best points of lines are where they were planted."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import pytest
from made_shifts import PEAKS, SEVERITIES, SHOWN, TOLD, add, change, evaluated, offset, shifted, with_shifted
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from page_cases import deviation, is_ensemble, is_middle, is_pair, is_point

from subspaces.errors import UserError
from subspaces.evaluation import curves
from subspaces.evaluation.comparing import groups_of
from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.evaluation.curves import averaged_over, changed
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.rows import Row
from subspaces.experiments.opening import opened
from subspaces.reports import figures
from subspaces.reports.figures.style import BEST_LABEL

METHODS = ("standard", "line", "simplex")
SEEDS = (0, 1)
Records = dict[str, list[Evaluation]]


@pytest.fixture(scope="module")
def runs() -> Records:
    return {name: [add(evaluated(name, seed)) for seed in SEEDS] for name in METHODS}


def draw(name, sources, **options):
    return figures.draw(name, opened(sources), **options)


def those(runs: Records, *names: str) -> list[Evaluation]:
    return [record for name in names for record in runs[name]]


def rise(name: str, row: Row, record: Evaluation) -> float:
    return float(np.mean([change(name, s, row, offset(record)) for s in SEVERITIES]))


def planted(records: list[Evaluation], wanted: Callable[[Row], bool]) -> np.ndarray:
    """Return the planted changes of the accuracy [seeds, corruptions], of the only row that is wanted."""
    found = []
    for record in records:
        (row,) = (row for row in record.rows if wanted(row))
        found.append([rise(name, row, record) for name in SHOWN])
    return np.array(found)


def with_mean(values: np.ndarray) -> np.ndarray:
    """Return changes with their mean over those corruptions of which one is told."""
    return np.concatenate([values, values[:, : len(TOLD)].mean(1, keepdims=True)], axis=1)


def bars(figure) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the middles and heights of the bars of every series."""
    containers = [each for each in figure.axes[0].containers if isinstance(each, BarContainer)]
    return [
        (np.array([bar.get_x() + bar.get_width() / 2 for bar in each]), np.array([bar.get_height() for bar in each]))
        for each in containers
    ]


def around(figure) -> list[np.ndarray]:
    """Return the lower and upper ends of the error bars of every series [places, 2]."""
    lines = [each for each in figure.axes[0].collections if type(each).__name__ == "LineCollection"]
    return [np.array([segment[:, 1] for segment in each.get_segments()]) for each in lines]


def labels(figure, at: int = -1) -> list[str]:
    return [" ".join(text.get_text().split()) for text in figure.legends[at].get_texts()]


def stars(axes) -> list[tuple[np.ndarray, np.ndarray]]:
    found = [line for line in axes.lines if line.get_marker() == "*"]
    assert {line.get_markerfacecolor() for line in found} <= {"white"}  # chosen on what is shown
    return [(np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)) for line in found]


# Bars


@pytest.fixture(scope="module")
def bar_chart(runs) -> Callable[[str | None], Figure]:
    return functools.cache(lambda metric: draw("shift", those(runs, *METHODS), metric=metric))


@pytest.mark.parametrize("metric", [None, "ece"])
def test_bars_are_the_changes_beside_standard_training(runs, bar_chart, metric):
    figure = bar_chart(metric)
    sign = 1 if metric is None else -1  # what an accuracy loses, an error gains
    zero = with_mean(planted(runs["standard"], is_point))
    expected = {
        "line: midpoint": planted(runs["line"], is_middle),
        "line: ensemble of 0.1 and 0.9": planted(runs["line"], is_pair(0.1, "probabilities")),
        "simplex (m = 3): midpoint": planted(runs["simplex"], is_middle),
        "simplex (m = 3): ensemble of 3 vertices": planted(runs["simplex"], is_ensemble("vertex")),
    }
    assert labels(figure) == [*expected, BEST_LABEL]
    for (middles, heights), ends, values in zip(bars(figure), around(figure), expected.values(), strict=True):
        difference = 100 * sign * (with_mean(values) - zero)
        assert heights == pytest.approx(difference.mean(0))
        assert ends[:, 1] - ends[:, 0] == pytest.approx(2 * deviation(difference), abs=1e-9)
        assert np.all(np.diff(middles) > 1)
    ticks = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert ticks == ["Gaussian noise", "snow", "contrast", "spatter", "mean of 3"]
    label = " ".join(figure.axes[0].get_ylabel().split())
    name = "ECE" if metric else "accuracy"
    assert label == f"relative change of {name} minus that of standard training (points)"
    side = "below 0: a smaller rise" if metric else "above 0: a smaller drop"
    note = figure.legends[0].get_title().get_text()
    assert note == f"mean ± standard deviation over 2 seeds\n{side} than with standard training"
    assert figure._suptitle.get_text() == "digits, 40 % label noise · mlp · test set · severities 1, 3"
    assert [text.get_text() for text in figure.axes[0].texts] == ["noise", "weather", "digital", "extra"]


def test_stars_are_the_best_points_of_a_line_for_each_corruption(runs, bar_chart):
    figure = bar_chart(None)
    ((places, heights),) = stars(figure.axes[0])
    assert places == pytest.approx(bars(figure)[0][0])  # above the bar of the midpoint
    zero = with_mean(planted(runs["standard"], is_point))
    best = [planted(runs["line"], lambda row, a=PEAKS[name]: is_point(row) and row.alphas == [a]) for name in SHOWN]
    own = np.stack([values[:, at] for at, values in enumerate(best)], axis=1)
    assert heights[:-1] == pytest.approx(100 * (own - zero[:, :-1]).mean(0))
    assert heights[-1] == pytest.approx(100 * (own[:, : len(TOLD)].mean(1) - zero[:, -1]).mean())


def test_what_cannot_be_drawn_says_why(runs):
    bare, line = evaluated("line", 7), runs["line"][0]
    other = with_shifted(line, (dataclasses.replace(row, source="a folder") for row in shifted(line)))
    ensembles = with_shifted(line, (row for row in shifted(line) if row.kind == "ensemble"))
    missing = "was not measured on shifted data: evaluate it with corruptions"
    for name, sources, options, error, words in (
        ("shift", [bare], {}, UserError, f"line 7 {missing}"),
        ("shift", ensembles, {}, UserError, f"line 0 {missing}"),
        ("shift-along", dataclasses.replace(line, rows=[]), {}, UserError, f"line 0 {missing}"),
        ("shift", [runs["simplex"][0], other], {}, UserError, "different shifted data"),
        ("shift", [*runs["line"][:1], *runs["standard"][1:]], {}, UserError, "share no seed"),
        ("shift", line, {"metric": "aurc"}, ValueError, "metric='aurc' was not measured on shifted data: did you mean"),
        ("shift", line, {"split": "validation"}, ValueError, "split='validation': shifted data stand in place"),
        ("shift-along", runs["simplex"], {}, UserError, "no line or curve among the runs"),
    ):
        with pytest.raises(error, match=words):
            draw(name, sources, **options)


# Along a line


def test_lines_on_every_corruption_and_their_best_points(runs):
    figure = draw("shift-along", those(runs, *METHODS), metric="ece")
    panels = [axes for axes in figure.axes if axes.axison]
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == ["unchanged", *(CORRUPTIONS[name].label for name in SHOWN)]
    for axes, name in zip(panels, (None, *SHOWN), strict=True):
        values = []
        for record in runs["line"]:
            rows = sorted(filter(is_point, record.rows), key=lambda row: row.alphas[0])
            risen = [0.0 if name is None else rise(name, row, record) for row in rows]
            values.append([100 * row.metrics["ece"] * (1 - each) for row, each in zip(rows, risen, strict=True)])
        mean = np.mean(values, axis=0)
        dashed = next(line for line in axes.lines if len(line.get_xdata()) == 21)
        assert dashed.get_ydata() == pytest.approx(mean)
        ((where, height),) = stars(axes)
        assert (*where, *height) == pytest.approx((np.argmin(mean) / 20, mean.min()))
    assert labels(figure, 0) == ["network at α", "ensemble of α and 1−α", BEST_LABEL]
    assert labels(figure) == ["standard", "line", "simplex (m = 3): midpoint"]


# What both stand on


def test_the_relative_change_is_a_share_of_what_was_before():
    record = evaluated("standard", 0)
    record.rows[0].metrics["ece"] = 0.0
    add(record)
    first = shifted(record)[0]
    first.metrics.update(accuracy=1.5 * record.rows[0].metrics["accuracy"], ece=0.3)
    some = [row for row in shifted(record) if (row.data, row.severity) == (first.data, first.severity)]
    (one,) = curves.conditions(groups_of([with_shifted(record, some)]))
    (found,) = changed(groups_of([record])[0], [one])
    assert found.relative("accuracy") == {(0,): pytest.approx(0.5)}
    assert np.isnan(found.relative("ece")[0,])


def test_a_set_that_lacks_an_answer_is_in_no_mean(runs):
    line = runs["line"][0]
    kept = [row for row in shifted(line) if (row.data, row.severity) != ("spatter", 1) or row.kind == "point"]
    record = with_shifted(line, kept)
    found = curves.conditions(groups_of([record]))
    assert {each.name: each.severities for each in found}["spatter"] == (3,)
    (*_, last) = changed(groups_of([record])[0], averaged_over(found))
    pair = is_pair(0.1, "probabilities")
    rows = [row for row in shifted(line) if row.data in TOLD and pair(dataclasses.replace(row, group=""))]
    assert last.after.spread("nll").mean == pytest.approx(np.mean([row.nll for row in rows]))


def test_only_what_all_runs_were_measured_on_is_compared(runs):
    one, whole = runs["line"]
    some = [row for row in shifted(whole) if (row.data, row.severity) not in (("snow", 1), ("contrast", 3))]
    elsewhere = [dataclasses.replace(row, source="x") if row.data == "spatter" else row for row in some]
    found = curves.conditions(groups_of([one, with_shifted(whole, elsewhere)]))
    assert {each.name: each.severities for each in found} == {"gaussian_noise": (1, 3), "snow": (3,), "contrast": (1,)}
