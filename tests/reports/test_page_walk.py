"""Walking through a run: numbers, reliability and images of every point are those of its files."""

import base64
import io
from typing import Any

import numpy as np
import pytest
from page_cases import CLASSES, LABELS, METRICS, digits, is_ensemble, is_middle, is_pair, is_point, scale
from PIL import Image
from visiting import PERCENT, chart, eventually, everywhere_in, near, reads

from subspaces.evaluation.rows import Examples, Row, pictures


def enter(page, name: str, seed: int) -> None:
    page.select_option("#walk-run", label=f"{LABELS[name]}, seed {seed}")


def named(row: Row) -> str:
    """Return what a point is called."""
    (alpha,) = row.alphas
    if not isinstance(alpha, list):
        return f"α = {alpha:.3g}"
    vertices = "–".join(str(k + 1) for k, share in enumerate(alpha) if share)
    shares = f"{row.role} point ({', '.join(f'{share:.2f}' for share in alpha)})"
    return {"midpoint": "midpoint", "vertex": f"vertex {vertices}", "edge": f"edge {vertices}"}.get(row.role, shares)


def assert_numbers(texts: list[list[str]], column: int, row: Row) -> None:
    """Compare a column of the table of numbers with a row."""
    assert [line[0] for line in texts] == [label for label, *_ in METRICS.values()]
    for line, name in zip(texts, METRICS, strict=True):
        assert reads(line[column], scale(name) * row.metrics[name], digits=digits(name), unit=PERCENT[name])


def assert_reliability(traces: list[dict[str, Any]], point: Row, ensemble: Row) -> None:
    diagonal, bars, shares, line, steps = traces
    assert (diagonal["x"], diagonal["y"]) == ([0, 1], [0, 100])
    assert [trace.get("yaxis", "y") for trace in traces] == ["y", "y", "y2", "y", "y2"]
    for right, share, row in ((bars, shares, point), (line, steps, ensemble)):
        found = {name: np.array(values, float) for name, values in vars(row.reliability).items()}
        assert np.array(right["y"], float) == pytest.approx(100 * found["accuracy"], rel=6e-6, nan_ok=True)
        assert share["y"] == near(100 * found["count"] / found["count"].sum())
        assert share["x"] == pytest.approx((np.arange(20) + 0.5) / 20)
        for text, count, *values in zip(right["customdata"], *found.values(), strict=True):
            images, *shares = text.split("<br>")
            assert images == f"{count:.0f} images"
            for said, word, value in zip(shares, ("confidence ", "right "), values, strict=True):
                assert reads(said.removeprefix(word), 100 * value if count else None, digits=1, unit=" %")
    assert np.array(line["x"], float) == pytest.approx(found["confidence"], rel=6e-6, nan_ok=True)


def assert_images(shown: dict[str, Any], examples: Examples, point: Row, where: str) -> None:
    if point.alphas[0] not in examples.alphas:
        assert (shown["title"], shown["images"]) == ("", [])
        return
    at, labels = examples.alphas.index(point.alphas[0]), examples.labels
    right = [answer == label for answer, label in zip(examples.predicted[at], labels, strict=True)]
    assert shown["title"] == f"Images whose predictions change: {sum(right)} of {len(labels)} right at {where}"
    assert shown["classes"] == ["right" if one else "wrong" for one in right]
    assert shown["truths"] == [f"is {CLASSES[label]}" for label in labels]
    marks = zip(right, examples.predicted[at], strict=True)
    assert shown["answers"] == [("right: ✓ " if one else "wrong: ✗ ") + CLASSES[answer] for one, answer in marks]
    sure = [int(text.removesuffix(" % sure")) for text in shown["sure"]]
    assert sure == pytest.approx(100 * np.array(examples.confidence[at]), abs=0.51)


@pytest.mark.parametrize(("name", "seed"), [("line", 2), ("curve", 1), ("simplex", 1)])
def test_every_point_of_a_run(page, recorded, name, seed):
    enter(page, name, seed)
    rows, examples = recorded.rows(name, seed, is_point), recorded.records[name][seed].examples
    points = {named(row): row for row in sorted(rows, key=lambda row: row.alphas[0])[::-1]}
    if name == "simplex":  # once each, the first of those with one name, in the order of the list
        points = {named(row): row for row in reversed(rows)}
        points = {where: points[where] for where in page.locator("#walk-point option").all_inner_texts()}
    else:
        points = dict(reversed(points.items()))
        assert page.locator(".ends span").all_inner_texts() == ["α = 0", "α = 1"]
    everywhere, (middle,) = everywhere_in(page), recorded.rows(name, seed, is_middle)
    for shown, (where, point) in zip(everywhere, points.items(), strict=True):
        alone = is_ensemble("vertex") if name == "simplex" else is_pair(point.alphas[0], "probabilities")
        ensemble = recorded.rows(name, seed, alone)[0]
        together = "3 vertices" if name == "simplex" else " and ".join(f"{a:.3g}" for a in ensemble.alphas)
        assert shown["name"] == where + (", the midpoint" if name != "simplex" and point is middle else "")
        assert name == "simplex" or shown["said"] == where
        assert shown["caption"] == f"{LABELS[name]}, seed {seed}: {where}, test split"
        assert shown["head"] == ["Metric", where, "midpoint", f"ensemble of {together}"]
        for column, row in ((1, point), (2, middle), (3, ensemble)):
            assert_numbers(shown["body"], column, row)
        assert_reliability(shown["traces"], point, ensemble)
        assert_images(shown, examples, point, where)
    for source, image in zip(everywhere[-1]["images"], pictures(examples), strict=True):
        with Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))) as picture:
            assert np.array_equal(np.array(picture)[..., 0], image[0].numpy())


def test_the_triangle(page, recorded):
    enter(page, "simplex", 2)
    rows = {named(row): row for row in reversed(recorded.rows("simplex", 2, is_point))}
    points = [rows[name] for name in page.locator("#walk-point option").all_inner_texts()]
    (_, dots), layout = chart(page, "#walk-triangle")
    alphas, where = np.array([row.alphas[0] for row in points]), np.stack([dots["x"], dots["y"]], axis=1)
    own = where[[alphas.tolist().index(vertex) for vertex in np.eye(3).tolist()]]
    assert where == pytest.approx(alphas @ own, abs=1e-6)  # [points, 2]
    assert [np.hypot(*(own[i] - own[i - 1])) for i in range(3)] == pytest.approx([1, 1, 1])
    assert [each["text"] for each in layout["annotations"]] == ["vertex 1", "vertex 2", "vertex 3"]
    for metric in ("accuracy", "nll"):
        label, _, higher = METRICS[metric]
        page.select_option("#triangle-metric", label=label)
        marker = chart(page, "#walk-triangle")[0][1]["marker"]
        assert marker["color"] == near([scale(metric) * row.metrics[metric] for row in points])
        assert marker["reversescale"] is not higher
    page.locator("#walk-triangle .point").nth(1).click(force=True)  # below the layer that takes the click
    eventually(lambda: page.locator("#walk-name").inner_text() == named(points[1]), page)
    assert page.locator("#walk-point option:checked").inner_text() == named(points[1])
    widths = chart(page, "#walk-triangle")[0][1]["marker"]["line"]["width"]
    assert widths.index(max(widths)) == 1


def test_the_slider_by_keyboard(page):
    slider = page.get_by_role("slider", name="Point of the subspace, α")
    slider.focus()
    for key, name in (("ArrowRight", "α = 0.05"), ("ArrowRight", "α = 0.1"), ("Home", "α = 0"), ("End", "α = 1")):
        page.keyboard.press(key)
        assert slider.get_attribute("aria-valuetext") == page.locator("#walk-name").inner_text() == name
