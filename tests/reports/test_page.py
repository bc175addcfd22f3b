"""The page as a file: its numbers, words, commands, and that it keeps to itself."""

import base64
import dataclasses
import hashlib
import html
import io
import json
import re
import shlex
from pathlib import Path

import made_runs
import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import subspaces as ss
from subspaces.cli import app
from subspaces.evaluation.metrics import of_task
from subspaces.evaluation.record import Check, Record
from subspaces.experiments import training
from subspaces.experiments.training import RECIPES, Run, RunError
from subspaces.reports import page as report
from subspaces.reports import reading
from subspaces.reports.answers import Answer, answers, standard_for
from subspaces.reports.measures import measure
from subspaces.reports.page import commands, content, embedded, run_section, write_report
from subspaces.reports.page.words import Told, verdict

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
    return write_report(folders, tmp_path_factory.mktemp("page") / "report.html")


def data_of(path: Path):
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', path.read_text())
    return json.loads(text)


# One file that keeps to itself


def test_it_is_one_small_file_with_one_copy_of_plotly(written):
    text = written.read_text()
    assert written.stat().st_size < 6_000_000
    assert text.count("* plotly.js v") == 1


def test_its_scripts_are_all_there_is_in_their_folder():
    folder = Path(report.__file__).parent / "script"
    assert {path.name for path in folder.iterdir()} == {f"{name}.js" for name in report.SCRIPTS}


def test_it_refers_to_nothing_outside(written):
    markup = re.sub(r"<script.*?</script>", "", written.read_text(), flags=re.DOTALL)
    assert set(re.findall(r'\s(?:src|href|action|data)="([^"]*)"', markup)) == {"#main"}
    assert "url(" not in markup
    assert "@import" not in markup


def test_its_policy_allows_its_own_scripts_and_no_others(written):
    text = written.read_text()
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1))
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-([^']*)'", policy) == hashes
    assert policy.startswith("default-src 'none';")
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]


def test_text_in_json_can_not_leave_its_element():
    values = {EVIL: [EVIL, "a & b", "\u2028\u2029", 'quote " and \\', "<!--"], "number": 1.5, "none": None}
    text = embedded(values)
    assert json.loads(text) == values
    assert not set("<>&\u2028\u2029") & set(text)


def test_numbers_that_are_none_are_not_written_as_javascript():
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded({"x": float("nan")})


def test_names_from_records_and_recipes_are_escaped(tmp_path):
    folder = made_runs.run(tmp_path, "line", network=EVIL)
    record = Record.read(folder)
    record.dataset["classes"] = [EVIL] * 10
    record.environment["hardware"] = EVIL
    record.write(folder)
    path = write_report([folder], tmp_path / "evil.html")
    assert "<img" not in path.read_text().split("<script>")[0]
    assert data_of(path)["classes"] == [EVIL] * 10
    assert ["network", EVIL, True] in data_of(path)["runs"][0]["fields"]


# Its numbers are those of the records


def test_every_point_and_ensemble_has_the_numbers_of_its_row(folders, written):
    shown = {run["name"]: run for run in data_of(written)["runs"]}
    for folder in folders:
        rows = Record.read(folder).rows
        run = shown[folder.name]
        for point in run["points"]:
            row = next(row for row in rows if row.kind == "point" and row.alphas == [point["alpha"]])
            assert point["metrics"] == pytest.approx([row.metrics[name] for name in METRICS], rel=1e-5)
            assert point["reliability"]["count"] == row.reliability.count
            for found, value in zip(point["reliability"]["accuracy"], row.reliability.accuracy, strict=True):
                assert found == (None if value is None else pytest.approx(value, rel=1e-3))
        assert len(run["points"]) == len({str(row.alphas) for row in rows if row.kind == "point"})


def test_a_point_of_a_line_is_paired_with_its_opposite(runs, written):
    folder = runs["line"][0]
    run = next(run for run in data_of(written)["runs"] if run["name"] == folder.name)
    together = {
        row.alphas[0]: row.metrics["accuracy"] for row in Record.read(folder).rows if row.average == "probabilities"
    }
    for point in run["points"]:
        partner = run["ensembles"][point["partner"]]
        lower = min(together, key=lambda alpha: abs(alpha - min(point["alpha"], 1 - point["alpha"])))
        assert partner["metrics"][0] == pytest.approx(together[lower], rel=1e-5)
        assert partner["name"] == f"ensemble of {lower:.3g} and {1 - lower:.3g}"


def test_the_first_table_is_the_mean_and_the_deviation_over_seeds(runs, written):
    facts = {(fact["group"], fact["way"]): fact for fact in data_of(written)["facts"]}
    ends, middle = [], []
    for folder in runs["line"]:
        rows = {row.alphas[0]: row.metrics["ece"] for row in Record.read(folder).rows if row.kind == "point"}
        ends.append((rows[0.0] + rows[1.0]) / 2)
        middle.append(rows[0.5])
    at = METRICS.index("ece")
    for name, values in (("ends, on average", ends), ("midpoint", middle)):
        assert facts["line", name]["mean"][at] == pytest.approx(np.mean(values), rel=1e-5)
        assert facts["line", name]["std"][at] == pytest.approx(np.std(values, ddof=1), rel=1e-5)
    networks = {name: fact["networks"] for (_, name), fact in facts.items()}
    assert networks["ensemble of 3 vertices"] == 3
    assert networks["ensemble of 6 random points"] == 6
    assert networks["ensemble of 0.1 and 0.9"] == 2


def test_the_images_go_with_the_points_that_judge_them(runs, written):
    folder = runs["simplex"][0]
    run = next(run for run in data_of(written)["runs"] if run["name"] == folder.name)
    examples = Record.read(folder).examples
    assert run["strip"]["labels"] == examples.labels
    for point, predicted in zip(run["points"], run["strip"]["predicted"], strict=True):
        assert predicted == examples.predicted[examples.alphas.index(point["alpha"])]


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 20, 12)])
def test_a_small_image_keeps_every_pixel(shape):
    image = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    content = base64.b64decode(run_section.data_uri(image).partition(",")[2])
    found = torch.from_numpy(np.array(Image.open(io.BytesIO(content)))).permute(2, 0, 1)
    assert torch.equal(found, image.expand(3, -1, -1))


def test_a_large_image_is_made_smaller():
    uri = run_section.data_uri(torch.zeros(3, 224, 112, dtype=torch.uint8))
    assert Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).size == (32, 64)


def test_many_runs_stay_below_the_limit(tmp_path):
    many = [made_runs.run(tmp_path, "line", seed=seed) for seed in range(20)]
    assert write_report(many, tmp_path / "many.html").stat().st_size < 6_000_000


# Its words


def told(metric: str) -> Told:
    return Told(measure(metric), 1)


def way(*values: float, metric: str = "accuracy") -> Answer:
    return Answer("midpoint", "midpoint", None, {(seed,): {metric: value} for seed, value in enumerate(values)}, 1)


@pytest.mark.parametrize(
    ("first", "second", "metric", "expected"),
    [
        (way(0.9, 0.8), way(0.8, 0.81), "accuracy", "4.5 points better on average (in 1 of 2 seeds)"),
        (way(0.7, 0.7), way(0.8, 0.8), "accuracy", "10.0 points worse (in 2 of 2 seeds)"),
        (way(0.1, metric="ece"), way(0.3, metric="ece"), "ece", "20.0 points better"),
        (way(0.3, metric="ece"), way(0.1, metric="ece"), "ece", "20.0 points worse"),
        (way(0.7), way(0.70001), "accuracy", "no different"),
        (way(0.7, 0.7), way(0.8), "accuracy", "10.0 points worse"),
    ],
)
def test_better_and_worse_are_called_so(first, second, metric, expected):
    assert verdict(first, second, told(metric)) == expected


def test_the_midpoint_is_compared_with_standard_training_of_the_same_setting(runs, tmp_path):
    groups = reading.gather([*runs["line"], *runs["standard"]])
    line = next(group for group in groups if group.recipe.method == "line")
    assert standard_for(line, groups).recipe.method == "standard"
    words = dict(content.summary(groups, "test", 297)[0]["paragraphs"])
    standard = answers(standard_for(line, groups), "test")[0]
    assert f"standard training on {100 * standard.spread('accuracy').mean:.1f}" in words["Midpoint"]
    assert "one network for the midpoint and two for the ensemble." in words["Cost"]


def test_without_such_a_run_it_is_compared_with_the_ends_and_says_so(runs, tmp_path):
    other = made_runs.run(tmp_path, "standard", weight_decay=0.5)
    groups = reading.gather([*runs["line"], other])
    words = dict(content.summary(groups, "test", 297)[0]["paragraphs"])
    assert words["Midpoint"].startswith("No standard training of the same setting is among these runs.")
    assert re.search(r", its ends on average on [\d.]+", words["Midpoint"])


def test_the_ensemble_is_compared_with_the_midpoint_and_with_standard_training(runs):
    groups = reading.gather([*runs["simplex"], *runs["standard"]])
    (part,) = content.summary(groups, "test", 297)
    words = dict(part["paragraphs"])
    found = {one.name: one for group in groups for one in answers(group, "test")}
    vertices, random = found["ensemble of 3 vertices"], found["ensemble of 6 random points"]
    for other, name in (("midpoint", "the midpoint"), ("network", "standard training")):
        for metric in ("accuracy", "ece"):
            assert verdict(vertices, found[other], told(metric), name) in words["Ensemble"]
    right, error = (told(metric).text(random.spread(metric)) for metric in ("accuracy", "ece"))
    said = f"6 random points is right on {right}, its ECE {error}"
    assert said in words["Ensemble"]
    assert "one network for the midpoint and three or six for the ensemble." in words["Cost"]


def test_the_kind_of_a_group_is_what_alpha_is_in_its_result(runs, tmp_path: Path):
    folders = [made_runs.run(tmp_path, "swa-cyclic", vertices=m) for m in (2, 3)]
    folders += [made_runs.run(tmp_path, "integral"), *(runs[name][0] for name in ("standard", "line", "simplex"))]
    shown = content.page(reading.gather(folders))["groups"]
    assert {group["label"].partition(",")[0]: group["kind"] for group in shown} == {
        "standard": "single",
        "line": "interval",
        "simplex (m = 3)": "simplex",
        "swa-cyclic (m = 2)": "interval",
        "swa-cyclic (m = 3)": "simplex",
        "integral": "single",
    }
    assert all(bool(group["along"]) == (group["kind"] == "interval") for group in shown)
    assert all(bool(group["roles"]) == (group["kind"] == "simplex") for group in shown)


def test_a_method_of_several_passes_says_what_it_costs(tmp_path):
    groups = reading.gather([made_runs.run(tmp_path, "sam")])
    (part,) = content.summary(groups, "test", 297)
    assert dict(part["paragraphs"])["Cost"].startswith("One training run of two passes a step, one network at test. ")


def test_only_standard_training_is_called_so(runs, tmp_path):
    average = made_runs.run(tmp_path, "ema")
    groups = reading.gather([runs["line"][0], average])
    assert [group.runs[0].single for group in groups].count(True) == 1
    assert all(standard_for(group, groups) is None for group in groups)


def test_what_the_number_of_images_for_the_statistics_changes_is_said(tmp_path):
    folder = made_runs.run(tmp_path, "line")
    record = Record.read(folder)
    plane = record.planes[0].name
    for where, images, accuracy in (
        ("points", 128, [0.5, 0.61]),
        ("points", 640, [0.5, 0.61]),
        ("points", 1200, [0.5, 0.6]),
        (plane, 128, [0.3, 0.2]),
        (plane, 1200, [0.3, 0.234]),
    ):
        record.checks.append(Check(where, [[0.0], [1.0]], "test", images, {"accuracy": accuracy, "nll": [1.0, 1.0]}))
    record.write(folder)
    shown = content.page(reading.gather([folder]))
    text = (
        "With batch-norm statistics of 128 or 640 instead of 1,200 images, "
        f"the accuracy of 2 points of {folder.name} differs by at most"
    )
    assert any(f"{text} 1.0 points." in note for note in shown["notes"])
    assert "2 cells of" in shown["runs"][0]["planes"][0]["check"]
    assert shown["runs"][0]["planes"][0]["check"].endswith("differs by at most 3.4 points.")


def test_what_was_chosen_on_the_test_set_is_marked(runs, tmp_path):
    marked = content.page(reading.gather(runs["line"]))["notes"]
    assert any("chosen on the test set" in note for note in marked)
    honest = made_runs.run(tmp_path, "line", splits={"validation": 80, "test": 297}, validation=80)
    groups = reading.gather([honest])
    assert not any("chosen on the test set" in note for note in content.page(groups)["notes"])
    (choice,) = content.page(groups)["runs"][0]["choices"]
    assert (choice["chosen_on"], choice["on_test"]) == ("validation", False)


def test_one_seed_comes_with_a_warning(runs):
    one, two = (content.page(reading.gather(some))["notes"] for some in (runs["line"][:1], runs["line"]))
    assert any("may differ by chance" in note for note in one)
    assert not any("may differ by chance" in note for note in two)


# Its commands make the run again


def test_the_commands_make_the_same_run_and_the_same_numbers_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = dataclasses.replace(
        RECIPES["digits-line"], name="mine", epochs=1, flip=True, beta=0.25, network="mlp", seed=3, batch=256
    )
    standard = dataclasses.replace(RECIPES["digits-standard"], epochs=1, batch=256, flip=True)
    training.train([recipe, standard], out="runs", show="quiet", device="cpu", tensorboard=False)
    folder, other = (str(Run.under("runs", each).folder) for each in (recipe, standard))
    given = ["--grid", "0", "1", "0.25", "--choose-on", "test", "--statistics-batches", "2"]
    plane = ["--plane-through", f"{other}", "--cells", "3", "--plane-statistics-batches", "3"]
    assert runner.invoke(app, ["evaluate", folder, *given, *plane, "--quiet"]).exit_code == 0
    first = Record.read(Path(folder))
    known = commands.folders([reading.Reading(each) for each in (folder, other)])
    lines = commands.reproduce(reading.Reading(folder), known)
    assert lines[1] == shlex.join(["subspaces", "evaluate", folder, *given, *plane])

    again = tmp_path / "again"
    (again / "runs").mkdir(parents=True)
    (again / other).symlink_to(tmp_path / other)
    monkeypatch.chdir(again)
    for line in lines:
        result = runner.invoke(app, [*shlex.split(line)[1:], "--quiet"])
        assert result.exit_code == 0, result.output
    second = Record.read(again / folder)
    assert second.recipe == first.recipe
    for one, two in zip(first.rows, second.rows, strict=True):
        assert (one.alphas, one.role, one.average) == (two.alphas, two.role, two.average)
        assert one.metrics == pytest.approx(two.metrics, abs=1e-5)
    assert [choice.on_test for choice in second.choices] == [True] * len(first.choices)
    assert second.planes[0].values == first.planes[0].values


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("line", ["--grid", "0", "1", "0.2"]),
        ("line", ["--grid", "-0.2", "1.2", "0.1"]),
        ("simplex", ["--random", "0", "--triangle", "0"]),
        ("simplex", ["--random", "2", "--triangle", "3"]),
    ],
)
def test_options_of_an_evaluation_are_those_of_its_command(method, given, trained):
    folder = str(trained[method])
    for name in ("evaluation.json", "measurements.jsonl"):
        (Path(folder) / name).unlink(missing_ok=True)
    result = runner.invoke(app, ["evaluate", folder, *given, "--quiet", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    _, evaluate = commands.reproduce(reading.Reading(folder), {})
    assert shlex.split(evaluate)[3:] == given


def test_points_without_an_option_are_given_in_python(trained):
    ss.evaluate(trained["curve"], grid=(0.0, 0.1, 0.3), device="cpu", progress=False)
    _, evaluate, comment = commands.reproduce(reading.Reading(trained["curve"]), {})
    assert "--grid" not in evaluate
    assert comment.endswith("grid=[0, 0.1, 0.3, 0.5, 0.7, 0.9, 1])")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    recipes = [dataclasses.replace(RECIPES[f"digits-{m}"], epochs=1, batch=256) for m in ("line", "curve", "simplex")]
    out = tmp_path_factory.mktemp("trained")
    runs = training.train(recipes, out=out, show="quiet", device="cpu", tensorboard=False)
    return {run.recipe.method: run.folder for run in runs}


def test_a_plane_through_an_unknown_run_is_said_to_need_it(runs):
    run = reading.Reading(runs["line"][0])
    plane = run.record.planes[0]
    corners = [*plane.corners[:2], dataclasses.replace(plane.corners[2], label="mine seed 5")]
    run.record.planes[:] = [dataclasses.replace(plane, corners=corners, name="a,\nb")]
    *_, evaluate, comment = commands.reproduce(run, {})
    assert "--plane" not in evaluate
    assert comment == "# the plane through a, b also needs --plane-through RUN, which is not known here"


def test_a_label_that_two_runs_share_names_neither(runs, tmp_path):
    one, other = (reading.Reading(made_runs.run(tmp_path, "line", beta=beta)) for beta in (0.5, 2.0))
    curve = reading.Reading(runs["curve"][0])
    assert list(commands.folders([one, other, curve])) == ["digits-curve seed 0"]


# What goes wrong is said


def test_a_run_that_was_not_evaluated(tmp_path):
    folder = made_runs.run(tmp_path, "line")
    (folder / "evaluation.json").unlink()
    with pytest.raises(RunError, match=r"has no evaluation\.json: run `subspaces evaluate"):
        write_report([folder], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_an_evaluation_that_has_no_point_yet(tmp_path):
    folder = made_runs.run(tmp_path, "line")
    record = Record.read(folder)
    record.rows.clear()
    record.write(folder)
    with pytest.raises(RunError, match="has no evaluated point: run `subspaces evaluate"):
        write_report([folder], tmp_path / "report.html")


def test_a_damaged_environment_is_named(tmp_path):
    folder = made_runs.run(tmp_path, "line")
    (folder / "environment.json").write_text("{")
    with pytest.raises(RunError, match=r"environment\.json is damaged \(.*\): remove the folder"):
        write_report([folder], tmp_path / "report.html")


def test_runs_without_a_common_split(tmp_path):
    one = made_runs.run(tmp_path, "line", splits={"test": 60}, planes=False)
    other = made_runs.run(tmp_path, "curve", splits={"test": 60, "validation": 50}, validation=50, planes=False)
    record = Record.read(other)
    record.rows[:] = [row for row in record.rows if row.split == "validation"]
    record.write(other)
    with pytest.raises(RunError, match="different splits"):
        write_report([one, other], tmp_path / "report.html")


@pytest.mark.parametrize("where", ["", "missing/report.html"])
def test_a_place_that_can_not_be_written(folders, tmp_path, where):
    with pytest.raises(ValueError, match="expected the name of an HTML file in an existing folder"):
        write_report(folders, tmp_path / where)


def test_without_plotly_the_error_says_what_to_install(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'subspaces\[report\]'"):
        write_report(folders, tmp_path / "report.html")


def test_the_command_line(runs, tmp_path):
    out = tmp_path / "page.html"
    result = runner.invoke(app, ["report", *map(str, runs["line"]), "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert re.fullmatch(rf"wrote {re.escape(str(out))} \(\d\.\d MB\)\n", result.stdout)
    assert out.is_file()
    missing = runner.invoke(app, ["report", str(runs["line"][0]), "-o", str(tmp_path / "no" / "page.html")])
    assert missing.exit_code == 2
    assert "does not exist" in missing.stderr
