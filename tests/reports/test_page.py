"""The page as a file: its numbers are those of the records, and it keeps to itself."""

import base64
import dataclasses
import hashlib
import html
import io
import json
import re
from pathlib import Path

import made_runs
import made_shifts
import numpy as np
import pytest
import torch
from page_cases import Recorded
from PIL import Image
from typer.testing import CliRunner

from subspaces.cli import app
from subspaces.errors import UserError
from subspaces.evaluation.comparing import groups_of
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.metrics import of_task
from subspaces.evaluation.rows import Check, Choice
from subspaces.experiments.opening import opened
from subspaces.reports import page as report
from subspaces.reports.page import content, embedded, tables, walk
from subspaces.reports.page.content import Page
from subspaces.reports.page.numbers import places

METRICS = [metric.name for metric in of_task("classification")]
EVIL = "</script><img src=x onerror=alert(1)>"
runner = CliRunner()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    out = tmp_path_factory.mktemp("runs")
    return {m: [made_runs.run(out, m, seed=s) for s in (0, 1)] for m in ("standard", "line", "curve", "simplex")}


@pytest.fixture(scope="module")
def folders(runs) -> list[Path]:
    return [folder for each in runs.values() for folder in each]


@pytest.fixture(scope="module")
def written(folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(folders, tmp_path_factory.mktemp("page") / "report.html")


def write(folders, path: Path) -> Path:
    return report.write_report(opened(folders), path)


def page_of(folders) -> Page:
    return Page.of(groups_of(opened(folders)))


def data_of(path: Path):
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', path.read_text())
    return json.loads(text)


# One file that keeps to itself


def test_it_is_one_small_file_that_refers_to_nothing_outside(written):
    text = written.read_text()
    assert written.stat().st_size < 6_000_000
    assert text.count("* plotly.js v") == 1
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert set(re.findall(r'\s(?:src|href|action|data)="([^"]*)"', markup)) == {"#main"}
    assert not [word for word in ("url(", "@import") if word in markup]


def test_its_policy_allows_its_own_scripts_and_no_others(written):
    text = written.read_text()
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1))
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes
    assert policy.startswith("default-src 'none';")
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_text_in_json_can_not_leave_its_element():
    values = {EVIL: [EVIL, "a & b", "\u2028\u2029", 'quote " and \\', "<!--"], "number": 1.5, "none": float("nan")}
    text = embedded(values)
    assert json.loads(text) == values | {"none": None}
    assert not set("<>&\u2028\u2029") & set(text)


def test_names_from_records_and_recipes_are_escaped(tmp_path):
    folder = made_runs.run(tmp_path, "line", network=EVIL)
    record = Evaluation.load(folder)
    record.dataset["classes"] = [EVIL] * 10
    record.environment["hardware"] = record.command = EVIL
    record.save(folder)
    path = write([folder], tmp_path / "evil.html")
    assert "<img" not in path.read_text().split("<script>")[0]
    assert data_of(path)["classes"] == [EVIL] * 10
    assert path.read_text().count(html.escape(EVIL)) >= 3  # network, hardware, command


def test_many_runs_stay_below_the_limit(tmp_path):
    many = [made_runs.run(tmp_path, "line", seed=seed) for seed in range(12)]
    assert write(many, tmp_path / "many.html").stat().st_size < 6_000_000


# Its numbers are those of the records


def test_every_point_and_ensemble_has_the_numbers_of_its_row(folders, written):
    shown = dict(zip((one.name for _, one in page_of(folders).evaluations), data_of(written)["runs"], strict=True))
    for folder in folders:
        record, run = Evaluation.load(folder), shown[folder.name]
        for at, point in enumerate(run["points"]):
            row = next(row for row in record.rows if row.kind == "point" and row.alphas == [point["alpha"]])
            assert point["metrics"] == pytest.approx([row.metrics[name] for name in METRICS], rel=1e-5)
            assert point["reliability"]["count"] == row.reliability.count
            if record.examples is not None:
                place = record.examples.alphas.index(point["alpha"])
                assert run["strip"]["predicted"][at] == record.examples.predicted[place]
            if "line" in folder.name:
                alpha = min(point["alpha"], 1 - point["alpha"])
                pair = next(r for r in record.rows if r.average == "probabilities" and abs(r.alphas[0] - alpha) < 1e-9)
                together = run["ensembles"][point["partner"]]["metrics"]
                assert together == pytest.approx([pair.metrics[n] for n in METRICS], rel=1e-5)
        assert len(run["points"]) == len({str(row.alphas) for row in record.rows if row.kind == "point"})


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 20, 12)])
def test_a_small_image_keeps_every_pixel(shape):
    image = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    content = base64.b64decode(walk.data_uri(image).partition(",")[2])
    found = torch.from_numpy(np.array(Image.open(io.BytesIO(content)))).permute(2, 0, 1)
    assert torch.equal(found, image.expand(3, -1, -1))
    large = base64.b64decode(walk.data_uri(torch.zeros(3, 224, 112, dtype=torch.uint8)).partition(",")[2])
    assert Image.open(io.BytesIO(large)).size == (32, 64)


def test_the_kind_of_a_walk_is_what_alpha_is_in_the_result(runs, tmp_path: Path):
    some = [made_runs.run(tmp_path, "swa-cyclic", vertices=m) for m in (2, 3)]
    some += [made_runs.run(tmp_path, "integral"), *(runs[name][0] for name in ("standard", "line", "simplex"))]
    kinds = {each["name"].partition(",")[0]: each["kind"] for each in walk.walks(page_of(some))}
    assert kinds == {
        "standard": "single",
        "line": "interval",
        "simplex (m = 3)": "triangle",
        "swa-cyclic (m = 2)": "interval",
        "swa-cyclic (m = 3)": "triangle",
        "integral": "single",
    }


def test_tiles_compare_with_standard_training_over_the_same_seeds(recorded: Recorded):
    ways = {way: 100 * values.mean(0) for way, (values, _) in recorded.ways().items()}
    found = content.tiles(page_of(recorded.folders))
    assert [label for label, _ in found] == ["Line", "Curve", "Simplex (m = 3)"]
    for name, (_, parts) in zip(("line", "curve", "simplex"), found, strict=True):
        for (title, value, against), at, metric in zip(parts, (0, 3), ("accuracy", "ECE"), strict=True):
            ours, theirs = ways[name, "midpoint"][at], ways["standard", "network"][at]
            sign = "+" if ours > theirs else "−"
            assert (title, value) == (f"midpoint {metric}", f"{ours:.1f}\u00a0%")
            assert against == f"standard training {theirs:.1f}\u00a0%, difference {sign}{abs(ours - theirs):.1f} points"
    ((_, ((_, _, against), _)),) = content.tiles(page_of(recorded.runs["curve"]))
    assert against.startswith(f"its vertices on average {ways['curve', 'ends, on average'][0]:.1f}\u00a0%, difference ")
    mixed = page_of([*recorded.runs["line"][:2], recorded.runs["standard"][2]])
    assert content.tiles(mixed)[0][1][0][2].endswith(", with other seeds")


def test_notes_say_what_has_to_be_known(recorded: Recorded):
    page = page_of(recorded.folders)
    line, simplex = recorded.runs["line"][0].name, recorded.runs["simplex"][2].name
    checked = "With batch-norm statistics of 128 or 640 instead of 1,200 images, the accuracy of 2 points of"
    assert page.title == "digits: standard, line, curve and simplex"
    about = "network mlp · 12 epochs · 40% of the training labels random · 12 runs · test split, 120 images · made "
    assert page.subtitle.startswith(about)
    assert content.notes(page) == [
        "All numbers are on the 120 images of the test split.",
        "± is the standard deviation over training runs with different seeds (n − 1).",
        "Training time is that of the training steps alone, on average over seeds.",
        "Batch-norm statistics of every network: from 1,200 training images.",
        f"{checked} {line} differs by at most 4.0 points.",
        f"{checked} {simplex} differs by at most 10.0 points.",
        "The pair of a line or curve was fixed beforehand: 0.1 and 0.9, or the nearest measured points.",
        "Choices marked “chosen on the test set” look better than they are.",
    ]
    once = content.notes(page_of([each[1] for each in recorded.runs.values()]))
    assert "One seed each: small differences may be chance." in once
    uneven = content.notes(page_of([*recorded.runs["line"], *recorded.runs["curve"][:2]]))
    assert "Bold: only what has seeds 0, 1 and 2. Not compared: curve (seeds 0 and 1)." in uneven


def test_a_check_of_a_plane_stands_below_it(tmp_path):
    folder = made_runs.run(tmp_path, "line")
    record = Evaluation.load(folder)
    name = record.planes[0].name
    for images, accuracy in ((128, [0.3, 0.2]), (1200, [0.3, 0.234])):
        record.checks.append(Check(name, [[0.0], [1.0]], "test", images, {"accuracy": accuracy, "nll": [1.0, 1.0]}))
    record.save(folder)
    states = data_of(write([folder], tmp_path / "r.html"))["charts"]["planes"]["states"]
    assert "the accuracy of 2 cells of" in states["0|0"]["caption"]
    assert states["0|0"]["caption"].endswith("differs by at most 3.4 points.")


def test_only_held_out_images_in_common_are_shown(recorded: Recorded, tmp_path: Path):
    other = made_runs.run(tmp_path, "line", splits={"validation": 60, "test": 120}, validation=60, beta=0.25)
    record = Evaluation.load(other)
    record.rows[:] = [row for row in record.rows if row.split == "validation"]
    record.save(other)
    page = page_of([recorded.runs["line"][0], other])
    assert (page.split, page.images) == ("validation", 60)
    assert any("were held out of training" in note for note in content.notes(page))
    assert all(each["strip"] is None for each in walk.walks(page))  # its images are of the test set


def test_percentages_have_as_many_places_as_images_can_tell_apart():
    ece = next(each.described for each in of_task("classification") if each.name == "ece")
    assert [places(ece, images) for images in (60, 4999, 5000, 10_000)] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.123456, "0.123"),
        ([0.2, 0.8], "0.2, 0.8"),
        ([1 / 3] * 3, "midpoint"),
        ([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], "(1, 0, 0), (0, 0.5, 0.5)"),
    ],
)
def test_what_was_chosen_in_words(value, expected):
    assert tables.value_of(Choice("point", "nll", "validation", False, value, {})) == expected


# Shifted data and outliers


SOME = (("spatter", 1), ("snow", 3))


def test_what_the_shifted_data_are_is_said():
    line = made_shifts.add(made_shifts.evaluated("line", 0))
    shown = tables.Shifted(page_of([line]))
    assert shown.lead.startswith("4 corruptions at severities 1, 3, made of the test images, 120 images each.")
    assert "mean over 3 corruptions at severities 1, 3; extra corruptions are not in it" in shown.table().caption
    rows = {key: [row for row in made_shifts.shifted(line) if (row.data, row.severity) == key] for key in SOME}
    own = [dataclasses.replace(row, group="given", source="given", severity=0) for row in rows[SOME[0]]]
    read = [dataclasses.replace(row, source="CIFAR-10-C") for row in rows[SOME[1]]]
    mixed = tables.Shifted(page_of([made_shifts.with_shifted(line, [*own, *read])]))
    assert mixed.lead.startswith("2 sets at severity 3, read from CIFAR-10-C and given by loaders of your own, 120 ")
    cells = [(each.name, severity) for each, severity, found in mixed.cells["line"] if found]
    assert len(cells) == 2
    assert mixed.severities == [0, 3]


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


# What is refused


def test_an_evaluation_without_a_point_and_runs_without_a_common_split(tmp_path):
    folder = made_runs.run(tmp_path, "line", splits={"test": 60}, planes=False)
    other = made_runs.run(tmp_path, "curve", splits={"test": 60, "validation": 50}, validation=50, planes=False)
    record = Evaluation.load(other)
    record.rows[:] = [row for row in record.rows if row.split == "validation"]
    record.save(other)
    with pytest.raises(UserError, match="different splits"):
        write([folder, other], tmp_path / "report.html")
    record = Evaluation.load(folder)
    record.rows.clear()
    record.save(folder)
    with pytest.raises(UserError, match="has no evaluated point: run `subspaces evaluate"):
        write([folder], tmp_path / "report.html")


@pytest.mark.parametrize("where", ["", "missing/report.html"])
def test_a_place_that_can_not_be_written(folders, tmp_path, where):
    with pytest.raises(ValueError, match="expected the name of an HTML file in an existing folder"):
        write(folders, tmp_path / where)


def test_without_plotly_the_error_says_what_to_install(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'subspaces\[report\]'"):
        write(folders, tmp_path / "report.html")


def test_the_command_line(runs, tmp_path):
    out = tmp_path / "page.html"
    result = runner.invoke(app, ["report", *map(str, runs["line"]), "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert re.fullmatch(rf"wrote {re.escape(str(out))} \(\d\.\d MB\)\n", result.stdout)
    assert out.is_file()
    missing = runner.invoke(app, ["report", str(runs["line"][0]), "-o", str(tmp_path / "no" / "page.html")])
    assert missing.exit_code == 2
    assert "does not exist" in missing.stderr
