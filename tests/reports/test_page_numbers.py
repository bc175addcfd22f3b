"""Every number of the page's charts and tables over all runs is that of the records."""

import numpy as np
import pytest
from page_cases import (
    LABELS,
    METRICS,
    SEEDS,
    deviation,
    digits,
    is_ensemble,
    is_point,
    scale,
)
from visiting import HEADS, PERCENT, chart, copied, floats, legend, near, reads, table, unfolded

from subspaces.reports import reading
from subspaces.reports.page import content


@pytest.fixture
def page(opened_report):
    opened_report.select_option("#along-metric", label="Accuracy")
    opened_report.select_option("#along-average", label="probabilities")
    return opened_report


# The summary's table


def test_the_table_of_the_ways_to_predict(page, recorded):
    shown = table(page, "#facts")
    caption = "How good each answer is, and what it costs, mean ± standard deviation over seeds; bold: the best"
    assert shown["caption"] == caption
    assert shown["head"] == ["Answer", *HEADS, "Networks at test", "Training time"]
    ways = recorded.ways()
    headings = [line[0] for line in shown["body"] if len(line) == 1]
    assert headings == list(LABELS.values())
    group, found = "", {}
    for line, bold in zip(shown["body"], shown["bold"], strict=True):
        if len(line) == 1:
            group = next(name for name, label in LABELS.items() if label == line[0])
        else:
            found[group, line[0]] = (line[1:], bold[1:])
    assert list(found) == list(ways)
    for way, (values, networks) in ways.items():
        texts, _ = found[way]
        for at, metric in enumerate(METRICS):
            mean, std = (scale(metric) * number[at] for number in (values.mean(0), deviation(values)))
            assert reads(texts[at], mean, std, digits=digits(metric)), (way, metric)
        assert texts[-2:] == [str(networks), "0.29\u00a0s"]  # 12 epochs of 1,200 images, 50,000 a second
    for at, (metric, (*_, higher)) in enumerate(METRICS.items()):
        numbers = {way: float(texts[at].split(" ± ")[0]) for way, (texts, _) in found.items()}
        best = (max if higher else min)(numbers.values())
        assert metric != "aurc" or list(numbers.values()).count(best) == 2  # equal as they are shown
        assert {way for way, (_, bold) in found.items() if bold[at]} == {w for w, n in numbers.items() if n == best}
    assert not any(bold[-1] or bold[-2] for _, bold in found.values())


def test_the_copied_table_of_the_ways_to_predict(page, recorded):
    rows, ways = copied(page, "Copy as CSV: How good each answer is"), recorded.ways()
    columns = [name for metric in METRICS for name in (metric, f"{metric}_std")]
    costs = ["networks_at_test", "training_runs", "training_seconds"]
    assert list(rows[0]) == ["method", "answer", "seeds", *columns, *costs]
    assert [(row["method"], row["answer"]) for row in rows] == [(LABELS[name], way) for name, way in ways]
    for row, (values, networks) in zip(rows, ways.values(), strict=True):
        assert [float(row[metric]) for metric in METRICS] == near(values.mean(0))
        assert [float(row[f"{metric}_std"]) for metric in METRICS] == near(deviation(values))
        assert [row[name] for name in ("seeds", *costs)] == ["0 1 2", str(networks), "1", "0.288"]


def test_the_summary_says_what_was_worked_out(page, recorded):
    groups = reading.gather(recorded.folders)
    shown = content.page(groups)
    parts = shown["summary"]
    articles = page.locator("#summary article").all()
    for article, part in zip(articles, parts, strict=True):
        assert article.locator("h3").text_content() == part["label"]
        names, numbers, beside = (article.locator(t).all_text_contents() for t in ("dt", "dt + dd", ".against"))
        assert [tuple(figure.values()) for figure in part["figures"]] == list(zip(names, numbers, beside, strict=True))
        assert article.locator("p").all_text_contents() == [f"{name}. {text}" for name, text in part["paragraphs"]]
    assert page.locator("#summary .notes li").all_text_contents() == shown["notes"]


# Along the subspace


def curves(recorded, average: str) -> dict[str, tuple[list[float], np.ndarray]]:
    """Return what goes along alpha: names, alphas and metrics [seeds, points, metrics]."""
    found, (grid, _) = {}, recorded.along("line")
    for (name, way), (values, _) in recorded.ways().items():
        if name == "standard":
            found["standard"] = (grid, np.repeat(values[:, None], len(grid), 1))
        elif name in ("line", "curve") and way == "midpoint":
            found[f"{name}: at α"] = recorded.along(name)
            found[f"{name}: α and 1 − α together"] = recorded.together(name, average)
        elif name == "simplex" and way != "vertices, on average":
            found[f"{LABELS[name]}: {way}"] = (grid, np.repeat(values[:, None], len(grid), 1))
    return found


HIDDEN = f"{LABELS['simplex']}: ensemble of 6 random points"


@pytest.mark.parametrize("average", ["probabilities", "logits"])
def test_every_metric_along_the_subspace(page, recorded, average):
    page.select_option("#along-average", label=average)
    expected = curves(recorded, average)
    for at, (metric, (label, percent, higher)) in enumerate(METRICS.items()):
        page.select_option("#along-metric", label=label)
        traces, layout = chart(page, "#along-figure")
        lines = {trace["meta"]: trace for trace in traces if "meta" in trace}
        assert list(lines) == [name for name in expected if name != HIDDEN]
        for name, line in lines.items():
            alphas, values = expected[name]
            mean, std = scale(metric) * values[..., at].mean(0), scale(metric) * deviation(values[..., at])
            assert line["x"] == pytest.approx(alphas)
            assert line["y"] == near(mean)
            assert line["customdata"] == near(std)
            banded = "α" in name
            before = traces[traces.index(line) - 1]
            assert (before.get("fill") == "toself") is banded
            if banded:
                assert before["x"] == pytest.approx([*alphas, *alphas[::-1]])
                assert before["y"] == near([*(mean + std), *(mean - std)[::-1]])
        assert layout["yaxis"]["title"]["text"] == label + (" (%)" if percent else "")
        assert layout["xaxis"]["title"]["text"] == "α"
        caption = page.inner_text("#along-figure figcaption")
        assert caption.startswith(f"{label}: ")
        assert caption.endswith(
            f"{'higher' if higher else 'lower'} is better. Bands: one standard deviation over seeds."
        )
        hover = f"%{{y:.{digits(metric)}f}} ± %{{customdata:.{digits(metric)}f}}{PERCENT[metric]}"
        assert {line["hovertemplate"] for line in lines.values()} == {f"{hover}<extra>%{{meta}}</extra>"}


def test_the_legend_is_of_what_is_drawn(page, recorded):
    entries = legend(page, "#along-figure")
    traces, _ = chart(page, "#along-figure")
    lines = {trace["meta"]: trace for trace in traces if "meta" in trace}
    assert list(entries) == list(curves(recorded, "probabilities"))
    assert [name for name, entry in entries.items() if not entry["checked"]] == [HIDDEN]
    for name, line in lines.items():
        assert line["line"]["color"] == line["marker"]["color"] == entries[name]["stroke"]
        assert (line["line"]["dash"] == "solid") is (entries[name]["dashes"] is None)
        assert (line["mode"] == "lines+markers") is ("α" in name)
    dashes = {name: line["line"]["dash"] for name, line in lines.items()}
    assert {dashes[f"{name}: at α"] for name in ("line", "curve")} == {"dash"}
    assert {dashes[f"{name}: α and 1 − α together"] for name in ("line", "curve")} == {"solid"}
    assert len({dash for name, dash in dashes.items() if "α" not in name}) == 3
    groups = [{line["line"]["color"] for name, line in lines.items() if name.startswith(label)} for label in LABELS]
    assert [len(each) for each in groups] == [1] * 4  # a colour for each recipe
    assert len(set.union(*groups)) == 4
    box = page.get_by_role("checkbox", name=HIDDEN)
    box.check()
    shown, _ = chart(page, "#along-figure")
    (values, _) = recorded.ways()["simplex", "ensemble of 6 random points"]
    (line,) = (trace for trace in shown if trace.get("meta") == HIDDEN)
    assert line["y"] == near([100 * values.mean(0)[0]] * 21)
    box.uncheck()
    assert len(chart(page, "#along-figure")[0]) == len(traces)


@pytest.mark.parametrize(("metric", "average"), [("ece", "probabilities"), ("nll", "logits")])
def test_the_table_along_the_subspace(page, recorded, metric, average):
    page.select_option("#along-average", label=average)
    page.select_option("#along-metric", label=METRICS[metric][0])
    expected, at = curves(recorded, average), list(METRICS).index(metric)
    shown = unfolded(page, "#along-figure")
    assert shown["caption"] == f"{METRICS[metric][0]} along the subspace, test split"
    assert shown["head"] == ["α", *(f"{name}{', %' if METRICS[metric][1] else ''}" for name in expected)]
    rows = copied(page, f"Copy as CSV: {METRICS[metric][0]} along")
    assert list(rows[0]) == ["alpha", *(column for name in expected for column in (name, f"{name} std"))]
    alphas, _ = recorded.along("line")
    assert [line[0] for line in shown["body"]] == [f"{alpha:.3g}" for alpha in alphas]
    assert floats(rows, "alpha") == pytest.approx(alphas)
    for column, (name, (_, values)) in enumerate(expected.items(), 1):
        mean, std = values[..., at].mean(0), deviation(values[..., at])
        assert floats(rows, name) == near(mean)
        assert floats(rows, f"{name} std") == near(std)
        for line, middle, around in zip(shown["body"], scale(metric) * mean, scale(metric) * std, strict=True):
            assert reads(line[column], middle, around, digits=digits(metric))


# At the points of a simplex


def roles(recorded) -> list[tuple[str, np.ndarray]]:
    """Return the name and the metrics of every network and ensemble of the simplexes, seed after seed."""
    found = []
    for seed in SEEDS:
        points = recorded.rows("simplex", seed, is_point)
        both = [row for role in ("vertex", "random") for row in recorded.rows("simplex", seed, is_ensemble(role))]
        words = {"vertex": "ensemble of 3 vertices", "random": "ensemble of 6 random points"}
        for row in (*points, *both):
            name = row.role if row.kind == "point" else words[row.role]
            found.append((name, np.array([row.metrics[metric] for metric in METRICS])))
    order = list(dict.fromkeys(name for name, _ in found))
    return sorted(found, key=lambda one: order.index(one[0]))


def test_the_points_of_a_simplex(page, recorded):
    expected = roles(recorded)
    names = list(dict.fromkeys(name for name, _ in expected))
    shown = unfolded(page, "#roles-figure")
    assert shown["head"] == ["Method", "Point", *HEADS]
    rows = copied(page, "Copy as CSV: Measured points")
    assert [(row["Method"], row["Point"]) for row in rows] == [(LABELS["simplex"], name) for name, _ in expected]
    assert [line[:2] for line in shown["body"]] == [[LABELS["simplex"], name] for name, _ in expected]
    for at, (metric, (label, percent, _)) in enumerate(METRICS.items()):
        page.select_option("#along-metric", label=label)
        values = np.array([metrics[at] for _, metrics in expected])
        (marks,), layout = chart(page, "#roles-figure")
        assert marks["x"] == near(scale(metric) * values)
        assert marks["y"] == [names.index(name) for name, _ in expected]
        assert marks["text"] == [name for name, _ in expected]
        assert marks["meta"] == LABELS["simplex"]
        assert layout["xaxis"]["title"]["text"] == label + (" (%)" if percent else "")
        assert layout["yaxis"]["tickvals"] == list(range(len(names)))
        assert [text.replace("<br>", " ") for text in layout["yaxis"]["ticktext"]] == names
        assert layout["yaxis"]["range"] == [len(names) - 0.4, -0.6]
        assert floats(rows, metric) == near(values)
        pairs = zip(shown["body"], scale(metric) * values, strict=True)
        assert all(reads(line[2 + at], value, digits=digits(metric)) for line, value in pairs)
        assert page.inner_text("#roles-figure figcaption").startswith(f"{label} of every run: ")


# Training

PARTS = {"l2": "L2 distance", "cos2": "cos²"}


def test_the_vertices_over_the_epochs(page, recorded):
    shown, names = unfolded(page, "#training-figure"), ("line", "curve", "simplex")
    rows = copied(page, "Copy as CSV: The vertices over the epochs")
    epochs = list(range(1, 13))
    assert shown["head"] == ["Subspace", "Epoch", *PARTS.values()]
    expected = [[LABELS[name], str(epoch)] for name in names for epoch in epochs]
    assert [line[:2] for line in shown["body"]] == [[r["Subspace"], r["epoch"]] for r in rows] == expected
    for at, (part, label) in enumerate(PARTS.items()):
        traces, layout = chart(page, "#training-figure", at)
        assert layout["yaxis"]["title"]["text"] == label
        assert layout["xaxis"]["title"]["text"] == "Epoch"
        means = []
        for name, band, line in zip(names, traces[::2], traces[1::2], strict=True):
            values = recorded.logged(name, part)
            mean, std = values.mean(0), deviation(values)
            means += mean.tolist()
            assert line["meta"] == LABELS[name]
            assert line["x"] == epochs
            assert line["y"] == near(mean)
            assert band["x"] == [*epochs, *epochs[::-1]]
            assert band["y"] == near([*(mean + std), *(mean - std)[::-1]])
            assert legend(page, "#training-figure")[LABELS[name]]["stroke"] == line["line"]["color"]
        assert floats(rows, part) == near(means)
        assert [float(line[2 + at]) for line in shown["body"]] == pytest.approx(means, rel=5.1e-4)
    assert page.inner_text("#training-figure figcaption") == "Bands: one standard deviation over seeds."
