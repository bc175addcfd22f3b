"""The Integral study on digits: methods under noise, the closed form recomputed, resuming, errors, the command."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from study_cases import CPU, QUIET, images_of, load_data
from typer.testing import CliRunner

import subspaces as ss
from subspaces.cli import app
from subspaces.experiments.studies.integral import BATCHES, TOLERANCE, IntegralStudy, study_integral
from subspaces.experiments.training import Run
from subspaces.experiments.training.batches import statistics_batches
from subspaces.networks import MLP

RECIPES = [f"digits-{name}" for name in ("standard", "line", "integral")]
SETTINGS: dict[str, Any] = {**QUIET, "epochs": 3, "batch": 300}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> IntegralStudy:
    folder = tmp_path_factory.mktemp("integral")
    return study_integral(RECIPES, levels=[0.4, 0.0], seeds=[0], runs=folder / "runs", out=folder / "to", **SETTINGS)


def folder_of(made: IntegralStudy) -> Path:
    return made.files[0].parent


def test_every_method_has_a_line_at_every_level_with_one_rate(made: IntegralStudy):
    answers = [
        ("standard", "network"),
        ("line", "midpoint"),
        ("line", "ensemble of 0.1 and 0.9"),
        ("integral", "network"),
    ]
    assert [(line.level, line.method, line.answer) for line in made.study.lines] == [
        (level, *answer) for level in (0.0, 0.4) for answer in answers
    ]
    runs = [run for comparison in made.study.comparisons for run in comparison.runs]
    assert len(runs) == 6
    assert {run.recipe.learning_rate for run in runs} == {0.02}
    for line in made.study.lines:
        for one, accuracy in zip(line.chosen.group.evaluations, line.chosen.values("accuracy"), strict=True):
            result = Run.open(folder_of(made).parent / "runs" / one.name).result
            if line.method != "line":
                assert accuracy == pytest.approx(result["test_accuracy"], abs=2e-3)


def test_the_closed_form_holds_in_every_line_and_is_what_networks_answer(made: IntegralStudy):
    """Recomputed for one run without a predictor: every network with statistics of its own, in float64 from there."""
    assert [(one.label_noise, one.seed) for one in made.identities] == [(0.0, 0), (0.4, 0)]
    assert all(one.holds and 0 <= one.rounding <= TOLERANCE for one in made.identities)
    one = made.identities[1]
    folder = folder_of(made).parent / "runs" / one.run
    run, line = Run.open(folder), ss.load(folder / "trained.safetensors", lambda: MLP(64, 10))
    images, labels = images_of(folder, "test")
    dataset = load_data(run.recipe)

    @torch.no_grad()
    def g(alpha: float) -> np.ndarray:
        network = line.at(alpha, outside=True)
        ss.recalibrate(network, statistics_batches(run.recipe, dataset, CPU), batches=BATCHES)
        return network.eval()(images).double().numpy()

    start, end = g(0.0), g(1.0)
    mean = sum(start + (g(node + 0.1) - g(node)) / 0.1 for node in np.arange(20) / 20 + 0.025) / 20
    assert (one.images, one.nodes, one.epsilon) == (len(labels), 20, 0.1)
    assert one.accuracy == pytest.approx((end.argmax(1) == labels.numpy()).mean(), abs=2e-3)
    assert one.accuracy_mean == pytest.approx((mean.argmax(1) == labels.numpy()).mean(), abs=2e-3)
    assert one.disagreement == pytest.approx((end.argmax(1) != mean.argmax(1)).mean(), abs=2e-3)
    p, q = (torch.tensor(logits).softmax(1) for logits in (end, mean))
    assert one.total_variation == pytest.approx(float((p - q).abs().sum(1).mean() / 2), abs=1e-4)


def test_nothing_is_trained_or_measured_twice(made: IntegralStudy):
    folder = folder_of(made)
    runs = folder.parent / "runs"
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*") if path.is_file() and path.name != ".lock"}
    again = study_integral(RECIPES, levels=[0, 0.4], seeds=[0], runs=runs, out=folder / "again", **SETTINGS)
    after = {path: path.stat().st_mtime_ns for path in runs.rglob("*") if path.is_file() and path.name != ".lock"}
    assert again.identities == made.identities
    assert after == before
    assert (folder / "again" / "integral.json").read_bytes() == (folder / "integral.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits-line"], "no recipe has the method integral"),
        (["digits-integral", "--epsilon", "0.3"], "--epsilon=0.3: expected 1 divided by a whole number"),
        (["digits-integral", "--label-noise", "0.2"], "--label-noise=0.2: the study has levels of it"),
        (["digits-integral", "--layerwise"], "--layerwise: integral makes no use of it"),
        (["digits-integral", "--quiet", "--json"], "exclude each other"),
    ],
)
def test_commands_that_cannot_work_say_why(arguments: list[str], message: str):
    result = CliRunner().invoke(app, ["study", "integral", *arguments], env={"COLUMNS": "240"})
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_command_shows_plan_tables_and_json(made: IntegralStudy):
    folder = folder_of(made)
    common = [*("study", "integral", *RECIPES, "--levels", "0", "0.4", "--seeds", "0"), "--device", "cpu"]
    common += ["--epochs", "3", "--batch", "300", "--runs", str(folder.parent / "runs"), "-o", str(folder / "cli")]

    def call(*more: str) -> str:
        result = CliRunner().invoke(app, [*common, *more], env={"COLUMNS": "240"})
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "0 of 6 runs would be trained" in call("--dry-run")
    assert json.loads(call("--json")) == json.loads((folder / "integral.json").read_bytes())
    shown = call("--quiet")
    assert "The closed form in each line" in shown
    assert f"{100 * made.identities[0].accuracy:.2f}" in shown
