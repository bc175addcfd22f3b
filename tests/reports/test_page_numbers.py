"""Every number of the page's charts and tables over all runs is that of the records."""

import numpy as np
import pytest
from page_cases import (
    CELLS,
    LABELS,
    METRICS,
    SEEDS,
    deviation,
    digits,
    is_ensemble,
    is_middle,
    is_pair,
    is_point,
    scale,
)
from visiting import HEADS, PERCENT, chart, legend, near, reads, table, unfolded


def shows(texts: list[str], values: np.ndarray) -> bool:
    """Say whether texts are the metrics of one seed, or mean ± standard deviation of several [seeds, metrics]."""
    found = []
    for text, column, metric in zip(texts, np.atleast_2d(values).T, METRICS, strict=True):
        numbers = [column.mean(), deviation(column)] if len(column) > 1 else [column[0]]
        found.append(reads(text, *(scale(metric) * number for number in numbers), digits=digits(metric)))
    return all(found)


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
        assert shows(found[way][0][:-2], values), way
        assert found[way][0][-2:] == [str(networks), "0.29\u00a0s"]  # 12 epochs of 1,200 images, 50,000 a second
    for at, (metric, (*_, higher)) in enumerate(METRICS.items()):
        numbers = {way: float(texts[at].split(" ± ")[0]) for way, (texts, _) in found.items()}
        best = (max if higher else min)(numbers.values())
        assert metric != "aurc" or list(numbers.values()).count(best) == 2  # equal as they are shown
        assert {way for way, (_, bold) in found.items() if bold[at]} == {w for w, n in numbers.items() if n == best}
    assert not any(bold[-1] or bold[-2] for _, bold in found.values())


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
        lines = {trace["name"]: trace for trace in traces if "name" in trace}
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
        assert {line["hovertemplate"] for line in lines.values()} == {f"{hover}<extra>%{{fullData.name}}</extra>"}


def test_the_legend_is_of_what_is_drawn(page, recorded):
    entries = legend(page, "#along-figure")
    traces, _ = chart(page, "#along-figure")
    lines = {trace["name"]: trace for trace in traces if "name" in trace}
    assert list(entries) == list(curves(recorded, "probabilities"))
    assert [name for name, entry in entries.items() if not entry["checked"]] == [HIDDEN]
    for name, line in lines.items():
        assert line["line"]["color"] == line["marker"]["color"] == entries[name]["stroke"]
        assert (line["line"]["dash"] == "solid") is (entries[name]["dashes"] is None)
        assert (line["mode"] == "lines+markers") is ("α" in name)
        assert name.endswith("at α") is (line["line"]["dash"] == "dash")
    assert len({line["line"]["dash"] for name, line in lines.items() if "α" not in name}) == 3
    groups = [{line["line"]["color"] for name, line in lines.items() if name.startswith(label)} for label in LABELS]
    assert [len(each) for each in groups] == [1] * 4  # a colour for each recipe
    assert len(set.union(*groups)) == 4
    box = page.get_by_role("checkbox", name=HIDDEN)
    box.check()
    (values, _) = recorded.ways()["simplex", "ensemble of 6 random points"]
    (line,) = (trace for trace in chart(page, "#along-figure")[0] if trace.get("name") == HIDDEN)
    assert line["y"] == near([100 * values.mean(0)[0]] * 21)
    box.uncheck()
    assert len(chart(page, "#along-figure")[0]) == len(traces)


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
    assert [line[:2] for line in shown["body"]] == [[LABELS["simplex"], name] for name, _ in expected]
    assert all(shows(line[2:], metrics) for line, (_, metrics) in zip(shown["body"], expected, strict=True))
    for at, (metric, (label, percent, _)) in enumerate(METRICS.items()):
        page.select_option("#along-metric", label=label)
        (marks,), layout = chart(page, "#roles-figure")
        assert marks["x"] == near([scale(metric) * metrics[at] for _, metrics in expected])
        assert marks["y"] == [names.index(name) for name, _ in expected]
        assert marks["text"] == [name for name, _ in expected]
        assert marks["name"] == LABELS["simplex"]
        assert layout["xaxis"]["title"]["text"] == label + (" (%)" if percent else "")
        assert layout["yaxis"]["tickvals"] == list(range(len(names)))
        assert [text.replace("<br>", " ") for text in layout["yaxis"]["ticktext"]] == names
        assert page.inner_text("#roles-figure figcaption").startswith(f"{label} of every run: ")


# Training

PARTS = {"l2": "L2 distance", "cos2": "cos²"}


def test_the_vertices_over_the_epochs(page, recorded):
    shown, names = unfolded(page, "#training-figure"), ("line", "curve", "simplex")
    epochs = list(range(1, 13))
    assert shown["head"] == ["Subspace", "Epoch", *PARTS.values()]
    expected = [[LABELS[name], str(epoch)] for name in names for epoch in epochs]
    assert [line[:2] for line in shown["body"]] == expected
    for at, (part, label) in enumerate(PARTS.items()):
        traces, layout = chart(page, "#training-figure", at)
        assert layout["yaxis"]["title"]["text"] == label
        assert layout["xaxis"]["title"]["text"] == "Epoch"
        means = []
        for name, band, line in zip(names, traces[::2], traces[1::2], strict=True):
            values = recorded.logged(name, part)
            mean, std = values.mean(0), deviation(values)
            means += mean.tolist()
            assert line["name"] == LABELS[name]
            assert line["x"] == epochs
            assert line["y"] == near(mean)
            assert band["x"] == [*epochs, *epochs[::-1]]
            assert band["y"] == near([*(mean + std), *(mean - std)[::-1]])
            assert legend(page, "#training-figure")[LABELS[name]]["stroke"] == line["line"]["color"]
        assert [float(line[2 + at].partition(" ")[0]) for line in shown["body"]] == pytest.approx(means, rel=5.1e-4)
    assert page.inner_text("#training-figure figcaption") == "Bands: one standard deviation over seeds."


# Tables of choices, runs, and along the subspace


def test_the_numbers_along_the_subspace_as_a_table(page, recorded):
    shown = unfolded(page, "#along-figure")
    assert shown["head"] == ["Answer", "α", *HEADS]
    for name, average in (("line: at α", ""), ("curve: α and 1 − α together, mean of logits", "logits")):
        method = name.partition(":")[0]
        alphas, values = recorded.together(method, average) if average else recorded.along(method)
        lines = {float(line[1]): line[2:] for line in shown["body"] if line[0] == name}
        known = {round(alpha, 3): place for place, alpha in enumerate(alphas)}
        assert lines.keys() == {alpha for alpha in known if alpha <= 0.5 or not average}
        assert all(shows(line, values[:, known[alpha]]) for alpha, line in lines.items())


def test_risk_over_coverage(page, recorded):
    expected = {"standard": recorded.risks("standard", is_point)}
    for name in ("line", "curve", "simplex"):
        wanted = is_ensemble("vertex") if name == "simplex" else is_pair(0.1, "probabilities")
        words = "3 vertices" if name == "simplex" else "0.1 and 0.9"
        expected[f"{LABELS[name]}: midpoint"] = recorded.risks(name, is_middle)
        expected[f"{LABELS[name]}: ensemble of {words}"] = recorded.risks(name, wanted)
    traces, _ = chart(page, "#selective-figure")
    assert [trace["name"] for trace in traces] == list(expected) == list(legend(page, "#selective-figure"))
    for trace, (name, (coverage, risk)) in zip(traces, expected.items(), strict=True):
        assert trace["x"] == near(100 * np.array(coverage), digits=5)
        assert trace["y"] == near(100 * risk, digits=5)
        kind = name.partition(": ")[2].partition(" ")[0]
        assert trace["line"]["dash"] == {"": "dot", "midpoint": "dash", "ensemble": "solid"}[kind]


def test_what_was_chosen_where_and_its_numbers(page, recorded):
    expected = [(name, seed, c) for name in LABELS for seed in SEEDS for c in recorded.records[name][seed].choices]
    shown = table(page, "#choices-table")
    assert shown["caption"] == "What was chosen, and its numbers on the test split"
    columns = {"accuracy": "Accuracy", "ece": "ECE"}
    assert shown["head"] == ["Run", "Chosen", "By", "On", *(f"{label}\u00a0%" for label in columns.values())]
    what = {"point": "best point", "pair": "best pair"}
    by = {"accuracy": "Accuracy", "nll": "NLL"}
    for line, (name, seed, choice) in zip(shown["body"], expected, strict=True):
        value = ", ".join(f"{a:.3g}" for a in (choice.value if isinstance(choice.value, list) else [choice.value]))
        where = "⚠ chosen on the test set" if choice.on_test else f"the {choice.chosen_on} split"
        assert line[:4] == [f"{LABELS[name]}, seed {seed}", f"{what[choice.what]}: {value}", by[choice.by], where]
        for column, key in enumerate(columns, 4):
            found = choice.reported["test"].get(key)
            assert reads(line[column], None if found is None else 100 * found, digits=1)
    marks = page.locator("#choices-table .mark").all_inner_texts()
    assert marks == ["⚠ chosen on the test set"] * sum(choice.on_test for *_, choice in expected)


def test_every_run_has_its_own_answer_and_its_configuration(page, recorded):
    shown = table(page, "#runs-table")
    assert shown["head"] == ["Run", "Method", "Answer", "Seed", *HEADS]
    every = [(name, seed) for name in LABELS for seed in SEEDS]
    for line, (name, seed) in zip(shown["body"], every, strict=True):
        words = "network" if name == "standard" else "midpoint"
        (row,) = recorded.rows(name, seed, is_point if name == "standard" else is_middle)
        assert line[:4] == [recorded.runs[name][seed].name, LABELS[name], words, str(seed)]
        assert shows(line[4:], np.array([row.metrics[metric] for metric in METRICS]))
    text = page.locator("#runs-details details").first.text_content()
    assert all(part in text for part in ("Configuration", "label_noise", "Training", "made up", "another machine"))


# Planes


@pytest.mark.parametrize("metric", ["accuracy", "nll"])
def test_planes(page, recorded, metric):
    page.select_option("#planes-metric", label=METRICS[metric][0])
    planes = [
        (f"{LABELS[name]}, seed {seed}: {plane.name}", plane)
        for name in ("line", "simplex", "standard")  # those of single networks come last
        for seed in SEEDS
        for plane in recorded.records[name][seed].planes
    ]
    assert page.locator("#planes-plane option").all_inner_texts() == [name for name, _ in planes]
    for at, (_, plane) in enumerate(planes):
        page.select_option("#planes-plane", index=at)
        (surface, *others), layout = chart(page, "#planes-figure")
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
        assert list(zip(corners["text"], corners["x"], corners["y"], strict=True)) == [
            (corner.label, corner.x, corner.y) for corner in plane.corners
        ]
        assert [each["text"] for each in layout["annotations"]] == [corner.label for corner in plane.corners]
        caption = page.inner_text("#planes-figure figcaption")
        assert f"on {CELLS[0]} × {CELLS[1]} cells; validation split, 60 images" in caption
        assert caption.endswith("Some cells are not computed yet.")
