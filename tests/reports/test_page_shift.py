"""The page's numbers on shifted data and against outliers are those that were planted in the records."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_shifts import METRICS, SCORES, SETS, SEVERITIES, SHOWN, TOLD, add, change, evaluated, offset, replaced, scores
from page_cases import deviation, is_middle, is_pair, is_point
from visiting import chart, copied, floats, near, reads, table, unfolded

from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.evaluation.record import Record, Row, Shift
from subspaces.reports.page import commands, content, write_report
from subspaces.reports.reading import Reading, gather

WAYS: dict[str, tuple[str, str, str, Callable[[Row], bool]]] = {  # method, group, answer and its row
    "standard": ("standard", "standard", "network", is_point),
    "line: midpoint": ("line", "line", "midpoint", is_middle),
    "line: ensemble of 0.1 and 0.9": ("line", "line", "ensemble of 0.1 and 0.9", is_pair(0.1, "probabilities")),
}
WORDS = [CORRUPTIONS[name].label for name in SHOWN]
Records = dict[str, list[Record]]


@pytest.fixture(scope="module")
def runs() -> Records:
    return {name: [add(evaluated(name, seed)) for seed in (0, 1)] for name in ("standard", "line")}


@pytest.fixture(scope="module")
def every(runs: Records) -> list[Record]:
    return [record for records in runs.values() for record in records]


def one_row(record: Record, wanted: Callable[[Row], bool]) -> Row:
    (row,) = (row for row in record.rows if wanted(row))
    return row


def clean(runs: Records, way: str, metric: str) -> np.ndarray:
    """Return a metric on the test examples [seeds]."""
    method, *_, wanted = WAYS[way]
    return np.array([one_row(record, wanted).metrics[metric] for record in runs[method]])


def changes(runs: Records, way: str, metric: str) -> np.ndarray:
    """Return the planted relative changes [seeds, corruptions, severities]."""
    method, *_, wanted = WAYS[way]
    sign = 1 if metric == "accuracy" else -1
    found = []
    for record in runs[method]:
        row, away = one_row(record, wanted), offset(record)
        found.append([[sign * change(name, severity, row, away) for severity in SEVERITIES] for name in SHOWN])
    return np.array(found)


def told(runs: Records, way: str, metric: str) -> dict[str, np.ndarray]:
    """Return what the table tells of a metric [seeds]: before, on average after, and how much that has changed."""
    before, change = clean(runs, way, metric), changes(runs, way, metric)[:, : len(TOLD)].mean((1, 2))
    return {"clean": before, "shifted": before * (1 + change), "change": change}


# The content


def test_the_numbers_are_those_that_were_planted(runs, every):
    shift = content.page(gather(every))["shift"]
    assert shift["metrics"] == list(METRICS)
    assert (shift["kinds"], shift["severities"]) == (WORDS, list(SEVERITIES))
    assert [(each["name"], each["group"], each["way"]) for each in shift["answers"]] == [
        (name, group, way) for name, (_, group, way, _) in WAYS.items()
    ]
    for answer in shift["answers"]:
        for at, metric in enumerate(METRICS):
            for part, values in told(runs, answer["name"], metric).items():
                assert answer[part]["mean"][at] == near(values.mean())
                assert answer[part]["std"][at] == near(deviation(values))
            planted = changes(runs, answer["name"], metric)
            values = {"change": planted, "shifted": clean(runs, answer["name"], metric)[:, None, None] * (1 + planted)}
            for part, expected in values.items():
                drawn = {
                    kind: [[cell[part][kind][at] for cell in line] for line in answer["cells"]]
                    for kind in ("mean", "std")
                }
                assert drawn["mean"] == near(expected.mean(0))
                assert drawn["std"] == near(deviation(expected), digits=4)


def test_what_the_shifted_data_are_is_said(every):
    shown = content.page(gather(every))
    lead, mean = shown["shift"]["lead"], shown["shift"]["mean"]
    assert "4 corruptions at severities 1, 3, made of the test images, 297 images each." in lead
    assert mean == "mean over 3 corruptions at severities 1, 3; extra corruptions are not in it"
    assert (
        shown["notes"][0]
        == "All numbers are on the 120 images of the test split, except under Shifted data and Outliers."
    )
    own = [dataclasses.replace(one, group="given", source="given", severity=0) for one in every[0].shifts[:2:2]]
    read = [dataclasses.replace(one, source="CIFAR-10-C") for one in every[0].shifts[-1:]]
    seeded = [dataclasses.replace(one, source="made, seed 3") for one in every[0].shifts]
    lead = content.page(gather(replaced(every[0], shifts=seeded)))["shift"]["lead"]
    assert "made of the test images with seed 3, 297 images each" in lead
    mixed = content.page(gather(replaced(every[0], shifts=[*own, *read])))["shift"]
    assert (
        "2 sets at severity 3, read from CIFAR-10-C and given by loaders of your own, 297 images each." in mixed["lead"]
    )
    assert mixed["severities"] == [0, 3]
    cells = mixed["answers"][0]["cells"]
    assert [[cell is None for cell in line] for line in cells] == [[True, False], [False, True]]


def test_nothing_is_said_of_what_was_not_measured(every):
    bare = [replaced(record, shifts=[], outliers=[]) for record in every]
    shown = content.page(gather(bare))
    assert (shown["shift"], shown["outliers"]) == (None, None)
    assert shown["notes"][0] == "All numbers are on the 120 images of the test split."
    some = content.page(gather([*bare[:2], *every[2:]]))  # of standard training nothing was
    assert {answer["group"] for answer in some["shift"]["answers"]} == {"line"}
    assert {row["group"] for row in some["outliers"]["rows"]} == {"line"}
    elsewhere = [dataclasses.replace(each, source="a folder") for each in every[0].shifts]
    apart = content.page(gather([replaced(every[0], shifts=elsewhere), *every[1:]]))
    assert apart["shift"] is None  # no data that all were measured on


def test_a_score_that_an_answer_does_not_have_is_left_open(every):
    def without(row: Row) -> Row:
        lacking = {name: value for name, value in row.metrics.items() if row.networks > 1 or "auroc" in name}
        return dataclasses.replace(row, metrics=lacking)

    sets = [dataclasses.replace(one, rows=list(map(without, one.rows))) for one in every[2].outliers]
    rows = content.page(gather(replaced(every[2], outliers=sets)))["outliers"]["rows"]
    assert [[value is None for value in row["mean"]] for row in rows] == [[False, True], [False, False]] * 2


# Its commands


def commands_of(record: Record, shifts: list[Shift], *outliers: tuple[str, str]) -> list[str]:
    """Return what is typed to measure a record again, after its folder."""
    sets = [dataclasses.replace(record.outliers[0], name=name, source=source) for name, source in outliers]
    changed = replaced(record, shifts=shifts, outliers=sets)
    _, *evaluations = commands.reproduce(Reading(changed), {})
    return [line.partition("digits-standard")[2].partition(" ")[2] or line for line in evaluations]


def test_the_commands_measure_the_same_shifted_data_and_outliers(every):
    record = every[0]
    shift = record.shifts[0]

    def made(*names: str, severities: tuple[int, ...] = (1, 2, 3, 4, 5), source: str = "made") -> list[Shift]:
        pairs = [(name, severity) for name in names for severity in severities]
        return [dataclasses.replace(shift, name=name, severity=s, source=source) for name, s in pairs]

    usual = [name for name, each in CORRUPTIONS.items() if each.group != "extra"]
    assert commands_of(record, made(*usual)) == ["--corruptions all"]
    assert commands_of(record, made(*CORRUPTIONS, source="made, seed 3")) == ["--corruptions extra --corruption-seed 3"]
    some = [*made("fog", severities=(1, 5)), *made("snow", severities=(5, 1)), *made("frost", source="CIFAR-10-C")]
    assert commands_of(record, some, ("mnist", "data"), ("digits", "data")) == [
        "--corruptions fog --corruptions snow --severities 1 5",
        "--corruptions frost --corrupted CIFAR-10-C",
        "--outliers mnist --outliers digits",
    ]
    given = made("rain\nrm x", "sleet", severities=(0,), source="given")
    assert commands_of(record, given, ("cats", "given"))[1:] == [
        "# rain rm x and sleet: given by loaders of your own; in Python: ss.evaluate(…, corruptions={…})",
        "# cats: given by loaders of your own; in Python: ss.evaluate(…, outliers={…})",
    ]


# In a browser


def assert_table(page: Any, runs: Records) -> None:
    shown = table(page, "#shift-table")
    assert shown["caption"].endswith("; mean ± standard deviation over seeds")
    parts = ("unchanged", "shifted")
    assert [" ".join(head.split()) for head in shown["head"]] == [
        "Answer",
        *(f"Accuracy, {part} %" for part in parts),
        "Relative change %",
        *(f"ECE, {part} %" for part in parts),
        "Relative change %",
    ]
    lines = [line for line in shown["body"] if len(line) > 1]
    rows = copied(page, "Copy as CSV: On shifted data")
    for line, row, (name, (_, group, way, _)) in zip(lines, rows, WAYS.items(), strict=True):
        assert (line[0], row["method"], row["answer"]) == (way, group, way)
        texts = iter(line[1:])
        for metric in ("accuracy", "ece"):
            for part, values in told(runs, name, metric).items():
                text = next(texts)
                assert part != "change" or text[0] == ("−" if metric == "accuracy" else "+")
                plain = text.replace("−", "-").lstrip("+")
                assert reads(plain, 100 * values.mean(), 100 * deviation(values), digits=1), (name, metric, part)
                column = metric if part == "clean" else f"{metric}_{part}"
                assert float(row[column]) == near(values.mean())
                assert float(row[f"{column}_std"]) == near(deviation(values))


def assert_map(page: Any, runs: Records, way: str, metric: str, part: str) -> None:
    """Choose what the chart shows, and compare its cells and its table."""
    label = {"accuracy": "Accuracy", "nll": "NLL"}[metric]
    page.select_option("#shift-answer", label=way)
    page.select_option("#shift-metric", label=label)
    page.select_option("#shift-show", value=part)
    planted = changes(runs, way, metric)
    after = clean(runs, way, metric)[:, None, None] * (1 + planted)
    values = 100 * planted if part == "change" else after * (100 if metric == "accuracy" else 1)
    (drawn,), layout = chart(page, "#shift-figure")
    assert (drawn["x"], drawn["y"]) == ([str(severity) for severity in SEVERITIES], WORDS)
    assert drawn["z"] == near(values.mean(0))
    assert layout["yaxis"]["range"] == [3.5, -0.5]  # the first is above
    assert drawn["reversescale"] is (metric == "nll")
    digits = 3 if (metric, part) == ("nll", "shifted") else 1
    around = [text for line in drawn["customdata"] for text in line]
    assert all(
        reads(text.removeprefix(" ± "), std, digits=digits)
        for text, std in zip(around, deviation(values).flat, strict=True)
    )
    assert page.inner_text("#shift-figure figcaption").startswith(f"{way}: ")
    rows = unfolded(page, "#shift-figure")["body"]
    assert [row[:2] for row in rows] == [[name, str(severity)] for name in WORDS for severity in SEVERITIES]
    found = copied(page, f"Copy as CSV: {label} of {way} on shifted data")
    assert floats(found, metric) == near(after.mean(0).ravel())
    assert floats(found, f"{metric}_change") == near(planted.mean(0).ravel())


def assert_outliers(page: Any, runs: Records) -> None:
    shown, rows = table(page, "#outliers-table"), copied(page, "Copy as CSV: Telling outliers apart")
    assert shown["head"] == ["Answer", *(f"{each.label}\u00a0%" for each in SCORES)]
    headings = [f"{name} ({count} images)" for name, count in SETS.items()]
    assert [line[0] for line in shown["body"] if len(line) == 1] == headings
    lines = iter([line for line in shown["body"] if len(line) > 1])
    at = iter(rows)
    for heading, name in zip(headings, SETS, strict=True):
        for way, (method, *_, wanted) in WAYS.items():
            line, row = next(lines), next(at)
            assert (line[0], row["outliers"], row["answer"]) == (way, heading, way)
            for text, each in zip(line[1:], SCORES, strict=True):
                values = np.array([scores(one_row(record, wanted), name)[each.name] for record in runs[method]])
                assert reads(text, 100 * values.mean(), 100 * deviation(values), digits=1)
                assert float(row[each.name]) == near(values.mean())
    meanings = page.locator("#outliers-glossary dd").all_inner_texts()
    assert meanings == [
        f"{each.meaning}; {'lower' if each.lower_is_better else 'higher'} is better." for each in SCORES
    ]


def test_the_sections_in_a_browser(visitor, runs, every, tmp_path: Path):
    report = write_report(every, tmp_path / "report.html")
    page = visitor(report, permissions=["clipboard-read", "clipboard-write"])
    sections = page.locator("nav a").all_inner_texts()
    assert sections.index("Outliers") == sections.index("Shifted data") + 1
    assert re.match("How good the answers are on images", page.inner_text("#shift-lead"))
    assert_table(page, runs)
    assert_map(page, runs, "standard", "accuracy", "shifted")
    assert_map(page, runs, "line: ensemble of 0.1 and 0.9", "nll", "change")
    assert_map(page, runs, "line: midpoint", "nll", "shifted")
    assert_outliers(page, runs)
    visitor.give_back()
    assert visitor.troubles == []
