"""The page as a file: what it says is from the records, and it keeps to itself."""

import base64
import dataclasses
import html
import io
import re
import sys
from pathlib import Path

import made_runs
import made_shifts
import numpy as np
import pytest
import torch
from commands import CliRunner
from page_cases import Recorded
from PIL import Image
from visiting import data_of

from subspaces.cli import main as app
from subspaces.errors import UserError
from subspaces.evaluation.comparing import groups_of
from subspaces.experiments.opening import opened
from subspaces.reports import content, tables
from subspaces.reports import page as report
from subspaces.reports.content import Page


def write(folders, path: Path) -> Path:
    return report.write_report(opened(folders), path)


def page_of(folders) -> Page:
    return Page.of(groups_of(opened(folders)))


# One file that keeps to itself


def test_it_is_one_small_file_that_refers_to_nothing_outside(report_of_all):
    text = report_of_all.read_text()
    assert report_of_all.stat().st_size < 6_000_000
    assert text.count("* plotly.js v") == 1
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    links = set(re.findall(r'\s(?:src|href|action|data)="([^"]*)"', markup))
    assert all(link.startswith(("#", "data:text/csv;")) for link in links)
    assert not [word for word in ("url(", "@import") if word in markup]
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1))
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


# Its numbers are those of the records


def test_a_small_image_keeps_every_pixel():
    image = torch.randint(0, 256, (3, 20, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found, large = (
        Image.open(io.BytesIO(base64.b64decode(content.data_uri(each).partition(",")[2])))
        for each in (image, torch.zeros(1, 224, 112, dtype=torch.uint8))
    )
    assert torch.equal(torch.from_numpy(np.array(found)).permute(2, 0, 1), image)
    assert large.size == (32, 64)


def test_the_kind_of_a_walk_is_what_alpha_is_in_the_result(recorded: Recorded, tmp_path: Path):
    some = [made_runs.run(tmp_path, "swa-cyclic", vertices=m) for m in (2, 3)] + [made_runs.run(tmp_path, "integral")]
    some += [recorded.runs[name][0] for name in ("standard", "line", "simplex")]
    kinds = [each["kind"] for folder in some for each in page_of([folder]).walks()]
    assert kinds == ["interval", "triangle", "single", "single", "interval", "triangle"]


def test_tiles_are_beside_standard_training(recorded: Recorded):
    ways = {way: 100 * values.mean(0) for way, (values, _) in recorded.ways().items()}
    found = page_of(recorded.folders).tiles()
    assert [label for label, _ in found] == ["Line", "Curve", "Simplex (m = 3)"]
    for name, (_, parts) in zip(("line", "curve", "simplex"), found, strict=True):
        for part, at, metric in zip(parts, (0, 3), ("accuracy", "ECE"), strict=True):
            ours, theirs = (f"{ways[way][at]:.1f}\u00a0%" for way in ((name, "midpoint"), ("standard", "network")))
            assert part == (f"midpoint {metric}", ours, f"standard training {theirs}")
    ((_, ((_, _, against), _)),) = page_of(recorded.runs["curve"]).tiles()
    assert against == f"its vertices on average {ways['curve', 'ends, on average'][0]:.1f}\u00a0%"


def test_what_the_page_is_of(recorded: Recorded, report_of_all):
    page = page_of(recorded.folders)
    assert page.title == "digits: standard, line, curve and simplex"
    about = "digits, 40 % label noise · mlp · 12 epochs · 12 runs · test split, 120 images · made "
    assert page.subtitle.startswith(about)
    text = report_of_all.read_text()
    assert all(note in text for note in ("on the 120 images of the test split", "from 1,200 training images"))
    ece = next(each for each in page.metrics if each.name == "ece")  # as many places as images can tell apart
    assert [dataclasses.replace(page, images=images).places(ece) for images in (60, 4999, 5000)] == [1, 1, 2]


# Shifted data and outliers


def test_what_the_shifted_data_are_is_said():
    line = made_shifts.add(made_shifts.evaluated("line", 0))
    shown = tables.Shifted(page_of([line]))
    assert shown.counted == "4 corruptions at severities 1, 3, 120 images each"
    assert "mean over 3 corruptions at severities 1, 3; extra corruptions are not in it" in shown.table().caption
    own = [
        dataclasses.replace(row, group="given", severity=0) for row in made_shifts.shifted(line) if row.severity == 1
    ]
    assert tables.Shifted(page_of([made_shifts.with_shifted(line, own)])).counted == "4 sets, 120 images each"


def test_nothing_is_said_of_what_was_not_measured():
    whole = [made_shifts.add(made_shifts.evaluated(name, 0)) for name in ("standard", "line")]
    bare = [dataclasses.replace(one, rows=[row for row in one.rows if not row.group]) for one in whole]
    assert (tables.Shifted(page_of(bare)).answers, tables.outliers(page_of(bare))) == ([], None)
    some = page_of([bare[0], whole[1]])  # of standard training nothing was
    assert {one.before.group.label for one in tables.Shifted(some).answers} == {"line"}
    assert {row[0].partition(":")[0] for row in tables.outliers(some)[0].rows} == {"line"}
    elsewhere = [dataclasses.replace(row, source="a folder") for row in made_shifts.shifted(whole[0])]
    apart = page_of([made_shifts.with_shifted(whole[0], elsewhere), whole[1]])
    assert tables.Shifted(apart).answers == []  # no data that all were measured on


def test_the_numbers_on_shifted_data_and_against_outliers(tmp_path: Path):
    line = made_shifts.add(made_shifts.evaluated("line", 0))
    page = page_of([line])
    table, (scores, _) = tables.Shifted(page).table(), tables.outliers(page)
    rows = [row for row in made_shifts.shifted(line) if row.role == "midpoint" and row.data in made_shifts.TOLD]
    before, after = 100 * line["midpoint"].accuracy, 100 * np.mean([row.accuracy for row in rows])
    change = 100 * (after - before) / before
    assert table.rows[0][:4] == ["midpoint", f"{before:.1f}", f"{after:.1f}", f"{change:+.1f}".replace("-", "−")]
    auroc = [100 * line.row("midpoint", name).auroc_probability for name in made_shifts.SETS]
    assert [row[1] for row in scores.rows if row[0] == "line: midpoint"] == [f"{value:.1f}" for value in auroc]
    heat = data_of(report.write_report(line, tmp_path / "r.html"))["charts"]["shift"]["states"]["0|0"]["plots"][0]
    (shown,) = heat["data"]
    found = {
        (row.data, row.severity): 100 * row.accuracy for row in made_shifts.shifted(line) if row.role == "midpoint"
    }
    expected = [[found[name, severity] for severity in made_shifts.SEVERITIES] for name in made_shifts.SHOWN]
    assert np.array(shown["z"]) == pytest.approx(np.array(expected), rel=1e-5)


# What is refused


def test_an_evaluation_without_a_point_on_test_examples():
    one = made_shifts.evaluated("line", 0)
    one.rows[:] = [dataclasses.replace(row, data="validation") for row in one.rows]
    with pytest.raises(UserError, match="has no evaluated point: run `subspaces evaluate"):
        page_of([made_shifts.evaluated("curve", 0), one])


@pytest.mark.parametrize("where", ["", "missing/report.html"])
def test_a_place_that_can_not_be_written(recorded, tmp_path, where):
    with pytest.raises(ValueError, match="expected the name of an HTML file in an existing folder"):
        write(recorded.folders, tmp_path / where)


def test_without_plotly_the_error_says_what_to_install(recorded, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r"pip install 'subspaces\[report\]'"):
        write(recorded.folders, tmp_path / "report.html")


def test_the_command_line(recorded, tmp_path):
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", str(recorded.runs["line"][0]), "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert re.fullmatch(rf"wrote {re.escape(str(out))} \(\d\.\d MB\)\n", result.stdout)
    assert out.is_file()
