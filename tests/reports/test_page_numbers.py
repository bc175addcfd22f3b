"""Every number of the page's charts and tables over all runs is that of the records."""

import base64
import io
import re

import numpy as np
import pandas as pd
import pytest
from page_cases import LABELS, METRICS, SEEDS, deviation, digits, is_middle, is_point, scale
from visiting import HEADS, PERCENT, data_of, near, reads

from subspaces.evaluation.comparing import groups_of
from subspaces.experiments.opening import opened
from subspaces.reports import tables
from subspaces.reports.content import Page


@pytest.fixture(scope="module")
def page(recorded) -> Page:
    return Page.of(groups_of(opened(recorded.folders)))


@pytest.fixture(scope="module")
def charts(report_of_all):
    return data_of(report_of_all)["charts"]


def plot(charts, name: str, state: str = "", at: int = 0):
    """Return traces, layout and caption of a chart."""
    found = charts[name]["states"][state]
    return found["plots"][at]["data"], found["plots"][at]["layout"], found["caption"]


def lines_of(traces):
    return {trace["name"]: trace for trace in traces if "name" in trace}


def shows(texts: list[str], values: np.ndarray) -> bool:
    """Say whether texts are the metrics of one seed, or mean ± standard deviation of several [seeds, metrics]."""
    found = []
    for text, column, metric in zip(texts, np.atleast_2d(values).T, METRICS, strict=True):
        numbers = [column.mean(), deviation(column)] if len(column) > 1 else [column[0]]
        found.append(reads(text, *(scale(metric) * number for number in numbers), digits=digits(metric)))
    return all(found)


# Tables


def test_the_table_of_the_ways_to_predict(page, recorded):
    shown, ways = tables.answers(page), recorded.ways()
    caption = "How good each answer is, and what it costs, mean ± standard deviation over seeds; bold: the best"
    assert shown.caption == caption
    assert shown.head == ["Answer", *HEADS, "Networks at test"]
    names = [(group, row[0]) for group, row in zip(shown.groups, shown.rows, strict=True)]
    assert names == [(LABELS[name], way) for name, way in ways]
    for row, (values, networks) in zip(shown.rows, ways.values(), strict=True):
        assert shows(row[1:-1], values), row
        assert row[-1] == str(networks)
    for at, (metric, (*_, higher)) in enumerate(METRICS.items(), 1):
        numbers = [float(row[at].split(" ± ")[0]) for row in shown.rows]
        best = (max if higher else min)(numbers)
        assert metric != "aurc" or numbers.count(best) == 2  # equal as they are shown
        assert {row for row, column in shown.best if column == at} == {r for r, n in enumerate(numbers) if n == best}
    assert {column for _, column in shown.best} <= set(range(1, len(METRICS) + 1))


def test_answers_with_different_seeds_are_not_compared(recorded):
    uneven = tables.answers(Page.of(groups_of(opened([*recorded.runs["line"], *recorded.runs["curve"][:2]]))))
    assert "bold" not in uneven.caption
    assert list(dict.fromkeys(uneven.groups)) == ["line, seeds 0, 1 and 2", "curve, seeds 0 and 1"]
    assert uneven.best == set()


def test_what_was_chosen_where_and_its_numbers(page, recorded):
    expected = [(name, seed, c) for name in LABELS for seed in SEEDS for c in recorded.records[name][seed].choices]
    shown = tables.choices(page)
    assert shown.caption == "What was chosen, and its numbers on the test split"
    assert shown.head == ["Run", "Chosen", "By", "On", "Accuracy\u00a0%", "ECE\u00a0%"]
    for line, (name, seed, choice) in zip(shown.rows, expected, strict=True):
        value = " and ".join(f"{a:.3g}" for a in (choice.value if choice.what == "pair" else [choice.value]))
        where = "⚠ chosen on the test set" if choice.on_test else f"the {choice.chosen_on} split"
        by = {"accuracy": "Accuracy", "nll": "NLL"}[choice.by]
        assert line[:4] == [f"{LABELS[name]}, seed {seed}", f"best {choice.what}: {value}", by, where]
        for column, key in enumerate(("accuracy", "ece"), 4):
            assert reads(line[column], 100 * choice.reported["test"][key], digits=1)


def test_every_run_has_its_own_answer(page, recorded):
    shown = tables.of_runs(page)
    assert shown.head == ["Run", "Method", "Answer", "Seed", *HEADS]
    for line, (name, seed) in zip(shown.rows, [(name, seed) for name in LABELS for seed in SEEDS], strict=True):
        words = "network" if name == "standard" else "midpoint"
        (row,) = recorded.rows(name, seed, is_point if name == "standard" else is_middle)
        assert line[:4] == [recorded.runs[name][seed].name, LABELS[name], words, str(seed)]
        assert shows(line[4:], np.array([row.metrics[metric] for metric in METRICS]))


def test_every_point_is_there_as_csv(report_of_all, recorded):
    (text,) = re.findall(
        r'download="points.csv" href="data:text/csv;charset=utf-8;base64,([^"]*)"', report_of_all.read_text()
    )
    found = pd.read_csv(io.BytesIO(base64.b64decode(text)))
    line = found[(found["run"] == recorded.runs["line"][0].name) & (found["kind"] == "point")]
    assert line["nll"].tolist() == near([row.nll for row in recorded.rows("line", 0, is_point)])
    assert set(found["data"]) == {"test"}
    assert set(found["seed"]) == set(SEEDS)


# Lines


def curves(recorded) -> dict[str, tuple[list[float], np.ndarray]]:
    """Return what goes along alpha: names, alphas and metrics [seeds, points, metrics]."""
    found, (grid, _) = {}, recorded.along("line")
    for (name, way), (values, _) in recorded.ways().items():
        if name == "standard":
            found["standard"] = (grid, np.repeat(values[:, None], len(grid), 1))
        elif name in ("line", "curve") and way == "midpoint":
            found[f"{name}: at α"] = recorded.along(name)
            found[f"{name}: α and 1 − α together"] = recorded.together(name, "probabilities")
        elif name == "simplex" and way != "vertices, on average":
            found[f"{LABELS[name]}: {way}"] = (grid, np.repeat(values[:, None], len(grid), 1))
    return found


def test_every_metric_along_the_subspace(charts, recorded):
    expected = curves(recorded)
    for at, (metric, (label, percent, higher)) in enumerate(METRICS.items()):
        traces, layout, caption = plot(charts, "along", f"{at}")
        lines = lines_of(traces)
        assert list(lines) == list(expected)
        for name, line in lines.items():
            alphas, values = expected[name]
            mean, std = scale(metric) * values[..., at].mean(0), scale(metric) * deviation(values[..., at])
            assert line["x"] == pytest.approx(alphas)
            assert line["y"] == near(mean)
            assert line["customdata"] == near(std)
            before = traces[traces.index(line) - 1]
            assert (before.get("fill") == "toself") is ("α" in name)
            if "α" in name:
                assert before["x"] == pytest.approx([*alphas, *alphas[::-1]])
                assert before["y"] == near([*(mean + std), *(mean - std)[::-1]])
            assert (line["mode"] == "lines+markers") is ("α" in name)
            assert (line["line"]["dash"] == "dash") is name.endswith("at α")
        assert layout["yaxis"]["title"]["text"] == label + (" (%)" if percent else "")
        assert caption.startswith(f"{label}: ")
        assert f"{'higher' if higher else 'lower'} is better. Bands: one standard deviation over seeds." in caption
        hover = f"%{{y:.{digits(metric)}f}} ± %{{customdata:.{digits(metric)}f}}{PERCENT[metric]}"
        assert {line["hovertemplate"] for line in lines.values()} == {f"{hover}<extra>%{{fullData.name}}</extra>"}
    groups = [
        {line["line"]["color"] for name, line in lines.items() if name.startswith(label)} for label in LABELS.values()
    ]
    assert [len(each) for each in groups] == [1] * 4  # a colour for each recipe
    assert len(set.union(*groups)) == 4


def test_the_vertices_over_the_epochs(charts, recorded):
    epochs, names = list(range(1, 13)), ("line", "curve", "simplex")
    for at, (part, label) in enumerate({"l2": "L2 distance", "cos2": "cos²"}.items()):
        traces, layout, caption = plot(charts, "training", at=at)
        assert layout["yaxis"]["title"]["text"] == label
        for name, band, line in zip(names, traces[::2], traces[1::2], strict=True):
            values = recorded.logged(name, part)
            mean, std = values.mean(0), deviation(values)
            assert (line["name"], line["x"], line["y"]) == (LABELS[name], epochs, near(mean))
            assert band["x"] == [*epochs, *epochs[::-1]]
            assert band["y"] == near([*(mean + std), *(mean - std)[::-1]])
    assert caption == "Bands: one standard deviation over seeds."


# Planes


@pytest.mark.parametrize(("number", "metric"), [(0, "accuracy"), (1, "nll")])
def test_planes(charts, recorded, number, metric):
    order = ("line", "simplex", "standard")  # those of single networks come last
    planes = [plane for name in order for seed in SEEDS for plane in recorded.records[name][seed].planes]
    assert len(charts["planes"]["states"]) == 2 * len(planes)
    for at, plane in enumerate(planes):
        (surface, *others), layout, caption = plot(charts, "planes", f"{at}|{number}")
        values = scale(metric) * np.array(plane.values[metric], float)
        known = np.sort(values[np.isfinite(values)])
        assert np.array(surface["z"], float) == pytest.approx(values, rel=6e-6, nan_ok=True)
        assert (surface["x"], surface["y"]) == (near(plane.xs), near(plane.ys))
        top = known[-1] if metric == "accuracy" else min(known[-1], max(4 * known[0], known[len(known) // 2]))
        assert (surface["zmin"], surface["zmax"]) == (near(known[0]), near(top))
        assert surface.get("reversescale", False) is (metric == "nll")
        casing, path, diamond, corners = others
        for drawn, trace in zip(plane.drawn, (path, diamond), strict=True):
            assert (trace["x"], trace["y"]) == (near(drawn.x), near(drawn.y))
            assert [" off the plane" in text for text in trace["text"]] == [d > 0.01 for d in drawn.distance]
        assert casing["x"] == path["x"]
        named = [(corner.label, corner.x, corner.y) for corner in plane.corners]
        assert [(each["text"], each["x"], each["y"]) for each in layout["annotations"]] == named
        assert list(zip(corners["x"], corners["y"], strict=True)) == [(x, y) for _, x, y in named]
        assert "on 5 × 4 cells; validation split, 60 images" in caption
        assert caption.endswith("Some cells are not computed yet.")
