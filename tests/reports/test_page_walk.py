"""Walking through a run: numbers, reliability and images of every point are those of its files."""

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from page_cases import CLASSES, LABELS, METRICS, digits, is_ensemble, is_middle, is_pair, is_point, scale
from PIL import Image
from visiting import PERCENT, chart, eventually, everywhere_in, near, reads

from subspaces.evaluation.rows import Examples, Row, pictures


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


def assert_reliability(traces: list[dict[str, Any]], point: Row, ensemble: Row, legend: list[str]) -> None:
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
    assert np.array(line["x"], float) == pytest.approx(
        np.array(ensemble.reliability.confidence, float), rel=6e-6, nan_ok=True
    )
    assert np.array(line["y"], float) == pytest.approx(
        100 * np.array(ensemble.reliability.accuracy, float), rel=6e-6, nan_ok=True
    )
    assert line["customdata"] == steps["customdata"]
    assert [bars["name"], line["name"]] == legend
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


def assert_walk(page, recorded, name: str, seed: int, points: list[Row], partner: Callable[[Row], Row]) -> list[Any]:
    """Compare what is shown at every point of a run with its record, and return it."""
    everywhere = everywhere_in(page)
    (middle,), examples = recorded.rows(name, seed, is_middle), recorded.records[name][seed].examples
    for shown, point in zip(everywhere, points, strict=True):
        ensemble, where = partner(point), named(point)
        assert shown["name"] == where + (", the midpoint" if name != "simplex" and point is middle else "")
        assert shown["caption"] == f"{LABELS[name]}, seed {seed}: {where}, test split"
        together = "3 vertices" if name == "simplex" else " and ".join(f"{a:.3g}" for a in ensemble.alphas)
        assert shown["head"][:4] == ["Metric", where, "midpoint", f"ensemble of {together}"]
        assert [line[0] for line in shown["body"]] == [label for label, *_ in METRICS.values()]
        for column, row in ((1, point), (2, middle), (3, ensemble)):
            assert numbers(shown["body"], column, row), (where, column)
        assert_reliability(shown["traces"], point, ensemble, [where, f"ensemble of {together}"])
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
    points = sorted(recorded.rows(name, seed, is_point), key=lambda row: row.alphas[0])

    def partner(row: Row) -> Row:
        return recorded.rows(name, seed, is_pair(row.alphas[0], "probabilities"))[0]

    everywhere = assert_walk(page, recorded, name, seed, points, partner)
    assert page.locator(".ends span").all_inner_texts() == ["α = 0", "α = 1"]
    for place, shown in enumerate(everywhere):
        assert shown["said"] == named(points[place])


# The triangle


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
    for at, shown in enumerate(everywhere):
        widths = shown["triangle"][1]["marker"]["line"]["width"]
        assert widths.index(max(widths)) == at
    (dots, layout), alphas = chart(page, "#walk-triangle"), np.array([row.alphas[0] for row in points])
    where = np.stack([dots[1]["x"], dots[1]["y"]], axis=1)
    own = where[[alphas.tolist().index(vertex) for vertex in np.eye(3).tolist()]]
    assert where == pytest.approx(alphas @ own, abs=1e-6)  # [points, 2]
    assert [np.hypot(*(own[i] - own[i - 1])) for i in range(3)] == pytest.approx([1, 1, 1])
    assert [each["text"] for each in layout["annotations"]] == ["vertex 1", "vertex 2", "vertex 3"]
    assert [[each["x"], each["y"]] for each in layout["annotations"]] == [near(corner) for corner in own]


def test_the_colours_of_a_triangle(page, recorded):
    enter(page, "simplex", 2)
    points = in_order(page, recorded, 2)
    for metric in ("accuracy", "nll"):
        label, _, higher = METRICS[metric]
        page.select_option("#triangle-metric", label=label)
        marker = chart(page, "#walk-triangle")[0][1]["marker"]
        assert marker["color"] == near([scale(metric) * row.metrics[metric] for row in points])
        assert marker["reversescale"] is not higher


def test_a_point_of_the_triangle_is_clicked(page):
    enter(page, "simplex", 0)
    page.locator("#walk-triangle .point").nth(1).click(force=True)  # below the layer that takes the click
    second = page.locator("#walk-point option").nth(1).inner_text()
    eventually(lambda: page.locator("#walk-name").inner_text() == second, page)
    assert page.locator("#walk-point option:checked").inner_text() == second


def test_the_slider_by_keyboard(page):
    slider = page.get_by_role("slider", name="Point of the subspace, α")
    slider.focus()
    for key, name in (("ArrowRight", "α = 0.05"), ("ArrowRight", "α = 0.1"), ("Home", "α = 0"), ("End", "α = 1")):
        page.keyboard.press(key)
        assert slider.get_attribute("aria-valuetext") == page.locator("#walk-name").inner_text() == name
