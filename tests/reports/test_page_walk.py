"""Walking through a run: numbers, reliability and images of every point are those of its files."""

import base64
import io
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from page_cases import CLASSES, LABELS, METRICS, digits, is_ensemble, is_middle, is_pair, is_point, scale
from PIL import Image
from visiting import PERCENT, chart, copied, everywhere_in, legend, near, reads

from subspaces.evaluation.examples import pictures
from subspaces.evaluation.rows import Examples, Row


def enter(page, name: str, seed: int) -> None:
    page.select_option("#walk-run", label=f"{LABELS[name]}, seed {seed}")


def numbers(texts: list[list[str]], column: int, row: Row) -> bool:
    """Say whether a column of the table of numbers is that of a row."""
    return all(
        reads(line[column], scale(name) * row.metrics[name], digits=digits(name), unit=PERCENT[name])
        for line, name in zip(texts, METRICS, strict=True)
    )


def assert_hovering(texts: list[str], row: Row) -> None:
    """Compare what is said of each bin."""
    table = row.reliability
    for text, count, *shares in zip(texts, table.count, table.confidence, table.accuracy, strict=True):
        images, sure, right = text.split("<br>")
        assert images == f"{count} images"
        for said, word, share in ((sure, "confidence ", shares[0]), (right, "right ", shares[1])):
            assert said.startswith(word)
            assert reads(said.removeprefix(word), None if share is None else 100 * share, digits=1, unit=" %")


def assert_reliability(traces: list[dict[str, Any]], point: Row, ensemble: Row) -> None:
    diagonal, bars, shares, line, steps = traces
    assert (diagonal["x"], diagonal["y"]) == ([0, 1], [0, 100])
    middles = (np.arange(20) + 0.5) / 20
    for drawn, row in ((bars, point), (shares, point), (steps, ensemble)):
        assert drawn["x"] == pytest.approx(middles)
        assert_hovering(drawn["customdata"], row)
    assert [trace.get("yaxis", "y") for trace in traces] == ["y", "y", "y2", "y", "y2"]
    accuracy, count = np.array(point.reliability.accuracy, float), np.array(point.reliability.count)
    assert np.array(bars["y"], float) == pytest.approx(100 * accuracy, rel=6e-6, nan_ok=True)
    assert shares["y"] == near(100 * count / count.sum())
    used = np.array(ensemble.reliability.count) > 0
    assert line["x"] == near(np.array(ensemble.reliability.confidence, float)[used])
    assert line["y"] == near(100 * np.array(ensemble.reliability.accuracy, float)[used])
    assert line["customdata"] == [text for text, there in zip(steps["customdata"], used, strict=True) if there]
    assert steps["y"] == near(100 * np.array(ensemble.reliability.count) / sum(ensemble.reliability.count))


def assert_images(shown: dict[str, Any], examples: Examples, point: Row, where: str) -> None:
    if point.alphas[0] not in examples.alphas:
        assert (shown["title"], shown["images"]) == ("", [])
        return
    at, labels = examples.alphas.index(point.alphas[0]), examples.labels
    answers, right = examples.predicted[at], (np.array(examples.predicted[at]) == labels).tolist()
    assert shown["title"] == f"Images whose predictions change: {sum(right)} of {len(labels)} right at {where}"
    assert shown["classes"] == ["right" if one else "wrong" for one in right]
    assert shown["truths"] == [f"is {CLASSES[label]}" for label in labels]
    marks = [("right: ✓ " if one else "wrong: ✗ ") for one in right]
    assert shown["answers"] == [mark + CLASSES[answer] for mark, answer in zip(marks, answers, strict=True)]
    sure = [int(text.removesuffix(" % sure")) for text in shown["sure"]]
    assert sure == pytest.approx(100 * np.array(examples.confidence[at]), abs=0.51)
    assert shown["alts"] == [f"test image {index}" for index in examples.indices]


def assert_walk(page, recorded, name: str, seed: int, points: list[Row], partner: Callable[[Row], Row]) -> list[Any]:
    """Compare what is shown at every point of a run with its record, and return it."""
    everywhere = everywhere_in(page)
    (middle,), examples = recorded.rows(name, seed, is_middle), recorded.records[name][seed].examples
    for place, (shown, point) in enumerate(zip(everywhere, points, strict=True)):
        ensemble, where = partner(point), named(point)
        assert shown["value"] == str(place)
        assert shown["name"] == where + (", the midpoint" if name != "simplex" and point is middle else "")
        assert shown["caption"] == f"{LABELS[name]}, seed {seed}: {where}, test split"
        together = "3 vertices" if name == "simplex" else " and ".join(f"{a:.3g}" for a in ensemble.alphas)
        assert shown["head"][:4] == ["Metric", where, "midpoint", f"ensemble of {together}"]
        assert [line[0] for line in shown["body"]] == [label for label, *_ in METRICS.values()]
        for column, row in ((1, point), (2, middle), (3, ensemble)):
            assert numbers(shown["body"], column, row), (where, column)
        assert shown["legend"] == [where, f"ensemble of {together}"]
        assert_reliability(shown["traces"], point, ensemble)
        assert_images(shown, examples, point, where)
    for source, image in zip(everywhere[-1]["images"], pictures(examples), strict=True):
        with Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))) as picture:
            assert np.array_equal(np.array(picture)[..., 0], image[0].numpy())
    return everywhere


def named(row: Row) -> str:
    """Return what a point is called."""
    (alpha,) = row.alphas
    if not isinstance(alpha, list):
        return f"α = {alpha:.3g}"
    vertices = "–".join(str(k + 1) for k, share in enumerate(alpha) if share)
    shares = f"{row.role} point ({', '.join(f'{share:.2f}' for share in alpha)})"
    return {"midpoint": "midpoint", "vertex": f"vertex {vertices}", "edge": f"edge {vertices}"}.get(row.role, shares)


@pytest.mark.parametrize(("name", "seed"), [("line", 2), ("curve", 1)])
def test_every_point_of_a_line_or_curve(page, recorded, name, seed):
    enter(page, name, seed)
    assert page.locator("#walk-alpha").input_value() == "2"  # α = 0.1
    points = sorted(recorded.rows(name, seed, is_point), key=lambda row: row.alphas[0])

    def partner(row: Row) -> Row:
        return recorded.rows(name, seed, is_pair(row.alphas[0], "probabilities"))[0]

    everywhere = assert_walk(page, recorded, name, seed, points, partner)
    assert page.locator(".ends span").all_inner_texts() == ["α = 0", "α = 1"]
    for place, shown in enumerate(everywhere):
        assert shown["said"] == named(points[place])
        assert shown["head"][4:] == ["along α"]
        for line, dot, metric in zip(shown["lines"], shown["dots"], METRICS, strict=True):
            values = np.array([row.metrics[metric] for row in points])
            share = (values - values.min()) / (values.max() - values.min())
            drawn = np.array([[float(part) for part in pair.split(",")] for pair in line.split()])
            assert drawn[:, 0] == pytest.approx(1 + 118 * np.linspace(0, 1, 21), abs=0.01)
            assert drawn[:, 1] == pytest.approx(24 - 22 * share, abs=0.01)  # upwards is more
            assert dot == pytest.approx(drawn[place])


def test_the_numbers_of_a_point_are_said_and_copied(page, recorded):
    enter(page, "curve", 0)
    page.locator("#walk-alpha").fill("7")
    row = recorded.rows("curve", 0, lambda row: is_point(row) and np.isclose(row.alphas[0], 0.35))[0]
    (middle,), pair = recorded.rows("curve", 0, is_middle), recorded.rows("curve", 0, is_pair(0.35, "probabilities"))[0]
    names = ["α = 0.35", "midpoint", "ensemble of 0.35 and 0.65"]
    told = (("Accuracy", "accuracy"), ("ECE", "ece"))
    said = [
        f"{what}: " + ", ".join(f"{label} {100 * one.metrics[m]:.1f}\u00a0%" for label, m in told)
        for what, one in ((names[0], row), (names[2], pair))
    ]
    page.wait_for_function("text => document.getElementById('live').textContent === text", arg="; ".join(said))
    rows = copied(page, "Copy as CSV: curve, seed 0")
    assert list(rows[0]) == ["Metric", *names, "along α"]
    assert [line["Metric"] for line in rows] == [label for label, *_ in METRICS.values()]
    for name, one in zip(names, (row, middle, pair), strict=True):
        shown = [line[name] for line in rows]
        values = [scale(metric) * one.metrics[metric] for metric in METRICS]
        assert all(reads(text, value, digits=digits(m)) for text, value, m in zip(shown, values, METRICS, strict=True))


def test_the_reliability_diagram_has_axes_and_a_legend(page):
    traces, layout = chart(page, "#walk-reliability")
    titles = [layout[axis]["title"]["text"] for axis in ("xaxis", "yaxis", "yaxis2")]
    assert titles == ["Confidence", "Right (%)", "Images (%)"]
    bars, line = legend(page, "#walk-reliability").values()
    assert bars["fill"] == traces[1]["marker"]["line"]["color"] == traces[2]["marker"]["color"]
    assert line["fill"] == line["stroke"] == traces[3]["line"]["color"] == traces[4]["line"]["color"] != bars["fill"]


# The triangle

DOTS = """() => [...document.querySelectorAll("#walk-triangle circle:not([r='13'])")].map((dot) =>
  [Number(dot.getAttribute("cx")), Number(dot.getAttribute("cy")), dot.getAttribute("fill")])"""


def in_order(page, recorded, seed: int) -> list[Row]:
    """Return every point of a simplex once, as the list has them."""
    every = {str(row.alphas): row for row in reversed(recorded.rows("simplex", seed, is_point))}
    rows = {named(row): row for row in every.values()}
    names = page.locator("#walk-point option").all_inner_texts()
    assert sorted(names) == sorted(rows)
    return [rows[name] for name in names]


def test_every_point_of_a_triangle(page, recorded):
    enter(page, "simplex", 1)
    (vertices,) = recorded.rows("simplex", 1, is_ensemble("vertex"))
    points = in_order(page, recorded, 1)
    assert page.locator("#walk-name").inner_text() == "vertex 1"
    everywhere = assert_walk(page, recorded, "simplex", 1, points, lambda row: vertices)
    assert {len(shown["head"]) for shown in everywhere} == {4}
    dots = page.evaluate(DOTS)
    assert [shown["cursor"] for shown in everywhere] == [dot[:2] for dot in dots]
    names = page.locator("#walk-triangle text").all()
    corners = np.array([[float(one.get_attribute(side)) for side in "xy"] for one in names])
    assert [one.text_content() for one in names] == ["vertex 1", "vertex 2", "vertex 3"]
    where, alphas = np.array([dot[:2] for dot in dots]), np.array([row.alphas[0] for row in points])
    own = where[[alphas.tolist().index(vertex) for vertex in np.eye(3).tolist()]]
    assert np.hypot(*(own[:, None] - corners).T).argmin(0).tolist() == [0, 1, 2]  # each beside its name
    assert where == pytest.approx(alphas @ own, abs=1e-6)  # [points, 2]
    assert own[0][1] == own[1][1] > own[2][1]
    assert own[0][0] < own[2][0] < own[1][0]


def test_the_colours_of_a_triangle(page, recorded):
    enter(page, "simplex", 2)
    points = in_order(page, recorded, 2)
    for metric in ("accuracy", "nll"):
        label, _, higher = METRICS[metric]
        page.select_option("#triangle-metric", label=label)
        values = np.array([row.metrics[metric] for row in points])
        worst, best = (values.min(), values.max()) if higher else (values.max(), values.min())
        wanted = 255 * mpl.colormaps["cividis"]((values - worst) / (best - worst))[:, :3]
        fills = np.array([[int(fill[k : k + 2], 16) for k in (1, 3, 5)] for *_, fill in page.evaluate(DOTS)])
        assert np.abs(fills - wanted).max() < 24  # the nearest of ten colours of the map
        low, high = page.locator(".scale span").all_inner_texts()
        assert reads(low, scale(metric) * worst, digits=digits(metric), unit=PERCENT[metric])
        assert reads(high, scale(metric) * best, digits=digits(metric), unit=PERCENT[metric] + ", best")


@pytest.mark.parametrize(("key", "ahead"), [("Left", (-1, 0)), ("Right", (1, 0)), ("Up", (0, -1)), ("Down", (0, 1))])
def test_arrows_go_to_a_neighbour_in_their_direction(page, key, ahead):
    enter(page, "simplex", 0)
    dots = np.array([dot[:2] for dot in page.evaluate(DOTS)])
    for label in ("midpoint", "edge 2–3", "vertex 1"):
        page.select_option("#walk-point", label=label)
        start = dots[int(page.locator("#walk-point").input_value())]
        page.locator("#walk-triangle").press(f"Arrow{key}")
        end = dots[int(page.locator("#walk-point").input_value())]
        along, aside = (dots - start) @ ahead, np.abs((dots - start) @ ahead[::-1])
        straight = along[(along > 1) & (aside < 0.3 * along)]
        if not len(straight):
            assert np.hypot(*(end - start)) == 0 or (end - start) @ ahead > 0
            continue
        assert 1 < (end - start) @ ahead <= straight.min() * 1.7
        assert abs((end - start) @ ahead[::-1]) < 1.9 * ((end - start) @ ahead)


def test_the_triangle_by_keyboard_and_pointer(page):
    enter(page, "simplex", 0)
    page.locator("#walk-triangle").focus()
    for key, name in (("Home", "midpoint"), *[("ArrowUp", None)] * 8, ("ArrowUp", "vertex 3"), ("Home", "midpoint")):
        page.keyboard.press(key)
        assert page.locator("#walk-name").inner_text() == (name or page.locator("#walk-name").inner_text())
    corner = page.locator("#walk-triangle circle").nth(1).bounding_box()
    page.mouse.click(corner["x"] + corner["width"] / 2, corner["y"] + corner["height"] / 2)
    second = page.locator("#walk-point option").nth(1).inner_text()
    assert page.locator("#walk-name").inner_text() == page.locator("#walk-point option:checked").inner_text() == second


def test_the_slider_by_keyboard(page):
    slider = page.get_by_role("slider", name="Point of the subspace, α")
    slider.focus()
    for key, name in (("ArrowRight", "α = 0.15"), ("ArrowRight", "α = 0.2"), ("Home", "α = 0"), ("End", "α = 1")):
        page.keyboard.press(key)
        assert slider.get_attribute("aria-valuetext") == page.locator("#walk-name").inner_text() == name
