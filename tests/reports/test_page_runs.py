"""What the page shows of selective prediction, of choices, planes and single runs is in their files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_cases import (
    CELLS,
    IMAGES,
    LABELS,
    METRICS,
    SEEDS,
    digits,
    is_ensemble,
    is_middle,
    is_pair,
    is_point,
    scale,
)
from visiting import HEADS, PERCENT, chart, copied, floats, legend, near, reads, table, unfolded

from subspaces.evaluation.record import Plane, Record
from subspaces.experiments.training import RECIPES, Run


@pytest.fixture
def page(opened_report):
    return opened_report


# Selective prediction


def test_risk_over_coverage(page, recorded):
    expected = {"standard": recorded.risks("standard", is_point)}
    for name, ensemble in (
        ("line", is_pair(0.1, "probabilities")),
        ("curve", is_pair(0.1, "probabilities")),
        ("simplex", is_ensemble("vertex")),
    ):
        expected[f"{LABELS[name]}: midpoint"] = recorded.risks(name, is_middle)
        words = "3 vertices" if name == "simplex" else "0.1 and 0.9"
        expected[f"{LABELS[name]}: ensemble of {words}"] = recorded.risks(name, ensemble)
    traces, layout = chart(page, "#selective-figure")
    assert [trace["meta"] for trace in traces] == list(expected) == list(legend(page, "#selective-figure"))
    entries = legend(page, "#selective-figure")
    for trace, (name, (coverage, risk)) in zip(traces, expected.items(), strict=True):
        assert trace["x"] == near(100 * np.array(coverage), digits=5)
        assert trace["y"] == near(100 * risk, digits=5)
        kind = name.partition(": ")[2].partition(" ")[0]
        assert trace["line"]["dash"] == {"": "dot", "midpoint": "dash", "ensemble": "solid"}[kind]
        assert trace["line"]["color"] == entries[name]["stroke"]
    assert layout["xaxis"]["title"]["text"] == "Most confident answers kept (%)"
    assert layout["yaxis"]["title"]["text"] == "Error among them (%)"
    shown, rows = unfolded(page, "#selective-figure"), copied(page, "Copy as CSV: Risk over coverage")
    assert shown["caption"] == "Risk over coverage, test split"
    assert shown["head"] == ["Answer", "Coverage", "Error"]
    flat = [(name, c, r) for name, both in expected.items() for c, r in zip(*both, strict=True)]
    assert [line[0] for line in shown["body"]] == [row["Answer"] for row in rows] == [one[0] for one in flat]
    for column, name in ((1, "coverage"), (2, "risk")):
        assert floats(rows, name) == near([one[column] for one in flat], digits=5)
        assert all(
            reads(line[column], 100 * one[column], digits=1, unit=" %")
            for line, one in zip(shown["body"], flat, strict=True)
        )


# Choices


def test_what_was_chosen_where_and_its_numbers(page, recorded):
    expected = [(name, seed, c) for name in LABELS for seed in SEEDS for c in recorded.records[name][seed].choices]
    assert {(choice.chosen_on, choice.on_test) for *_, choice in expected} == {("validation", False), ("test", True)}
    shown, rows = table(page, "#choices-table"), copied(page, "Copy as CSV: What was chosen")
    assert shown["caption"] == "What was chosen, and its numbers on the test split"
    columns = {"accuracy": "Accuracy", "ece": "ECE", "coverage": "Answered", "risk": "Error among them"}
    assert shown["head"] == ["Run", "Chosen", "By", "On", *(f"{label}\u00a0%" for label in columns.values())]
    assert list(rows[0]) == ["run", "Chosen", "by", "chosen_on", "on_test", *columns]
    what = {"point": "best point", "pair": "best pair", "threshold": "least confidence"}
    by = {"accuracy": "Accuracy", "nll": "NLL", "risk": "half of its error"}
    for line, row, (name, seed, choice) in zip(shown["body"], rows, expected, strict=True):
        value = ", ".join(f"{a:.3g}" for a in (choice.value if isinstance(choice.value, list) else [choice.value]))
        where = "⚠ chosen on the test set" if choice.on_test else f"the {choice.chosen_on} split"
        assert line[:4] == [f"{LABELS[name]}, seed {seed}", f"{what[choice.what]}: {value}", by[choice.by], where]
        assert row["run"] == recorded.runs[name][seed].name
        assert row["Chosen"] == line[1]
        assert (row["by"], row["chosen_on"]) == (choice.by, choice.chosen_on)
        assert row["on_test"] == ("true" if choice.on_test else "false")
        for column, key in enumerate(columns, 4):
            found = choice.reported["test"].get(key)
            assert reads(line[column], None if found is None else 100 * found, digits=1)
            assert row[key] == "" if found is None else float(row[key]) == near(found)
    marks = page.locator("#choices-table .mark").all_inner_texts()
    assert marks == ["⚠ chosen on the test set"] * sum(choice.on_test for *_, choice in expected)


# Planes


def planes(recorded) -> dict[str, Plane]:
    """Return the planes by what the list calls them; those of single networks come last."""
    found = [
        (f"{LABELS[name]}, seed {seed}: {plane.name}", plane)
        for name in ("line", "curve", "simplex", "standard")
        for seed in SEEDS
        for plane in recorded.records[name][seed].planes
    ]
    return dict(found)


def holes(grid: list[list[float | None]], factor: float) -> np.ndarray:
    return factor * np.array(grid, float)


@pytest.mark.parametrize("metric", ["accuracy", "nll"])
def test_planes(page, recorded, metric):
    page.select_option("#planes-metric", value=metric)
    assert page.locator("#planes-plane option").all_inner_texts() == list(planes(recorded))
    for name, plane in planes(recorded).items():
        page.select_option("#planes-plane", label=name)
        (surface, casing, path, diamond, corners), layout = chart(page, "#planes-figure")
        cells = holes(plane.values[metric], scale(metric))
        assert surface["x"] == near(plane.xs, digits=5)
        assert surface["y"] == near(plane.ys, digits=5)
        assert np.array(surface["z"], float) == pytest.approx(cells, rel=6e-6, nan_ok=True)
        known = np.sort(cells[np.isfinite(cells)])
        top = known[-1] if metric == "accuracy" else min(known[-1], max(4 * known[0], known[len(known) // 2]))
        assert top == known[-1] or metric == "nll"
        assert (surface["zmin"], surface["zmax"]) == pytest.approx((known[0], top), rel=6e-6)
        assert surface["reversescale"] is (metric == "nll")  # bright is good
        assert (surface["colorscale"], surface["zauto"], surface["autocontour"]) == ("Cividis", False, False)
        step, first, last = (surface["contours"][key] for key in ("size", "start", "end"))
        assert 8 <= (top - known[0]) / step <= 16.02
        assert first - step < known[0] <= first + 1e-3 * step
        assert last - 1e-3 * step <= top < last + step
        assert surface["colorbar"]["title"]["text"] == {"accuracy": "Accuracy (%)", "nll": "NLL"}[metric]
        assert surface["hovertemplate"].startswith({"accuracy": "%{z:.1f}\u00a0%<", "nll": "%{z:.3f}<"}[metric])
        for trace, drawn in ((casing, plane.drawn[0]), (path, plane.drawn[0]), (diamond, plane.drawn[1])):
            assert (trace["x"], trace["y"]) == (drawn.x, drawn.y)
        assert [trace["mode"] for trace in (casing, path, diamond)] == ["lines", "lines", "markers"]
        for trace, drawn in ((path, plane.drawn[0]), (diamond, plane.drawn[1])):
            off = [f", {d:.3g} off the plane" if d else "" for d in drawn.distance]
            assert trace["text"] == [drawn.label + words for words in off]
        places = [(corner.label, corner.x, corner.y) for corner in plane.corners]
        assert list(zip(corners["text"], corners["x"], corners["y"], strict=True)) == places
        assert [(note["text"], note["x"], note["y"]) for note in layout["annotations"]] == places
        assert layout["xaxis"]["range"] == near([plane.xs[0], plane.xs[-1]], digits=5)
        assert layout["yaxis"]["range"] == near([plane.ys[0], plane.ys[-1]], digits=5)


@pytest.mark.parametrize("metric", ["accuracy", "nll"])
def test_what_is_said_of_a_plane(page, recorded, metric):
    page.select_option("#planes-metric", value=metric)
    checked = "With batch-norm statistics of 320 instead of 1,200 images, the accuracy of 1 cells of"
    for at, (name, plane) in enumerate(planes(recorded).items()):
        page.select_option("#planes-plane", index=at)
        cells = holes(plane.values[metric], scale(metric))
        low, high = (f"{end:.{digits(metric)}f}{PERCENT[metric]}" for end in (np.nanmin(cells), np.nanmax(cells)))
        far = max(d for drawn in plane.drawn for d in drawn.distance)
        where = f"up to {far:.3g} off the plane" if far else "in the plane"
        text = page.locator("#planes-figure figcaption").text_content()
        assert text.startswith(
            f"{METRICS[metric][0]} from {low} to {high} on 5 × 4 cells; validation split, 60 images; "
        )
        assert f"batch-norm statistics of {plane.statistics_images:,} training images in every cell. Axes: " in text
        assert f" What is drawn lies {where}." in text
        assert (checked in text) is ("seed 1" in name)
        assert "differs by at most 8.8 points." in text or "seed 1" not in name
        assert text.endswith(" Some cells are not computed yet.")


def test_a_plane_is_copied_cell_by_cell(page, recorded):
    for name, plane in planes(recorded).items():
        page.select_option("#planes-plane", label=name)
        rows = copied(page, "Copy as CSV: the plane")
        assert list(rows[0]) == ["x", "y", "accuracy", "nll"]
        assert len(rows) == CELLS[0] * CELLS[1]
        cells = [(i, j) for i in range(len(plane.ys)) for j in range(len(plane.xs))]
        for row, (i, j) in zip(rows, cells, strict=True):
            assert (float(row["x"]), float(row["y"])) == pytest.approx((plane.xs[j], plane.ys[i]), rel=6e-5)
            for metric in ("accuracy", "nll"):
                found = plane.values[metric][i][j]
                assert row[metric] == "" if found is None else float(row[metric]) == pytest.approx(found, rel=6e-6)


# Runs


def order(recorded) -> list[tuple[str, int, Path, Record]]:
    return [(name, seed, recorded.runs[name][seed], recorded.records[name][seed]) for name in LABELS for seed in SEEDS]


def test_the_table_of_runs(page, recorded):
    shown, rows = table(page, "#runs-table"), copied(page, "Copy as CSV: The own answer of each run")
    assert shown["caption"] == "The own answer of each run, test split"
    assert shown["head"] == ["Run", "Method", "Answer", "Seed", *HEADS]
    assert list(rows[0]) == ["Run", "Method", "Answer", "seed", *METRICS]
    for line, row, (name, seed, folder, record) in zip(shown["body"], rows, order(recorded), strict=True):
        (middle,) = (one for one in record.rows if is_middle(one) and one.split == "test")
        answer = "network" if name == "standard" else "midpoint"
        assert line[:4] == [folder.name, LABELS[name], answer, str(seed)]
        assert line[:4] == [row[column] for column in ("Run", "Method", "Answer", "seed")]
        for at, metric in enumerate(METRICS, 4):
            assert reads(line[at], scale(metric) * middle.metrics[metric], digits=digits(metric))
            assert float(row[metric]) == near(middle.metrics[metric])


def key(alpha: Any) -> tuple[float, ...]:
    return tuple(np.atleast_1d(alpha).tolist())


def test_every_point_is_copied(page, recorded):
    rows = copied(page, "Copy every evaluated point as CSV")
    assert list(rows[0]) == ["run", "seed", "split", "kind", "role", "alpha", *METRICS]
    assert {row["split"] for row in rows} == {"test"}
    for name, seed, folder, _ in order(recorded):
        mine = [row for row in rows if row["run"] == folder.name]
        assert {row["seed"] for row in mine} == {str(seed)}
        points = {key(row.alphas[0]): row for row in reversed(recorded.rows(name, seed, is_point))}
        copies = {key(json.loads(row["alpha"])): row for row in mine if row["kind"] == "point"}
        assert copies.keys() == points.keys()
        for alpha, row in copies.items():
            assert row["role"] == points[alpha].role
            assert [float(row[metric]) for metric in METRICS] == near([points[alpha].metrics[m] for m in METRICS])
        together = recorded.rows(name, seed, lambda row: row.average == "probabilities")
        assert len(mine) == len(points) + len(together)
        for row, one in zip([row for row in mine if row["kind"] == "ensemble"], together, strict=True):
            words = {"vertex": "3 vertices", "random": "6 random points"}
            pair = " and ".join(f"{a:.3g}" for a in one.alphas) if one.role == "along" else ""
            assert (row["alpha"], row["role"]) == ("ensemble of " + words.get(one.role, pair), "")
            assert [float(row[metric]) for metric in METRICS] == near([one.metrics[m] for m in METRICS])


DETAILS = """details => ({
  name: details.querySelector("summary").textContent, code: details.querySelector("code").textContent,
  notes: details.querySelector(".notes").textContent,
  tables: Object.fromEntries([...details.querySelectorAll(".fields h4")].map((heading) => [heading.textContent,
    [...heading.nextElementSibling.tBodies[0].rows].map((row) =>
      [row.cells[0].textContent, row.cells[1].textContent, Boolean(row.querySelector("strong"))])])),
})"""


def told(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {told(part)}" for key, part in value.items())
    return "–" if value is None else str(value)


def test_how_each_run_was_made(page, recorded):
    details = page.locator("#runs-details details").all()
    for element, (name, seed, folder, record) in zip(details, order(recorded), strict=True):
        shown, recipe = element.evaluate(DETAILS), Run.open(folder).recipe
        usual = RECIPES[f"digits-{name}"].to_dict()
        fields = [[key, told(value), value != usual[key]] for key, value in recipe.to_dict().items()]
        assert shown["name"] == folder.name
        assert shown["tables"]["Configuration"] == fields
        assert {key for key, _, bold in fields if bold} == {"epochs", "validation"} | ({"seed"} if seed else set())
        assert shown["notes"] == f"Recipe digits-{name}; fields in bold differ from it."
        for heading, environment in (("Training", recorded.trained_on), ("Evaluation", record.environment)):
            assert shown["tables"][heading] == [[key, told(value), False] for key, value in environment.items()]
        train, evaluate, *_ = shown["code"].splitlines()
        given = f"--epochs 12 --seed {seed} --validation {IMAGES['validation']}".split(" --")
        assert train.split(" --")[0] == f"subspaces train digits-{name}"
        assert set(train.split(" --")[1:]) == {word.removeprefix("--") for word in given if seed or "seed" not in word}
        assert evaluate.startswith(f"subspaces evaluate runs/{folder.name}")
        assert ("--choose-on test" in evaluate) is ((name, seed) == ("line", 0))
