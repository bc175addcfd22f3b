"""The instability analysis on digits: trunks that are shared, every kind of mixture by hand, resuming, the command."""

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from number_cases import METRICS, Expected, cells_of, check_csv
from pretended import scores
from study_cases import CPU, QUIET, STANDARD, images_of, load_data, without_pictures
from torch import Tensor
from typer.testing import CliRunner

import subspaces as ss
from subspaces.cli import app
from subspaces.core import randomness
from subspaces.experiments.kept import Kept
from subspaces.experiments.studies.instability import KINDS, InstabilityStudy, Kind, study_instability
from subspaces.experiments.studies.instability import plan as planned
from subspaces.experiments.studies.setting import Setting
from subspaces.experiments.training import Run
from subspaces.experiments.training.batches import statistics_batches
from subspaces.networks import MLP

SETTINGS: dict[str, Any] = {**QUIET, "epochs": 4, "batch": 300, "shared": [2, 0], "models": (3, 2), "draws": 2}
Weights = dict[str, Tensor]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> InstabilityStudy:
    folder = tmp_path_factory.mktemp("instability")
    return study_instability("digits-standard", runs=folder / "runs", out=folder / "to", **SETTINGS)


def folder_of(made: InstabilityStudy) -> Path:
    return made.files[0].parent


def branches(made: InstabilityStudy, shared: int) -> list[Run]:
    return sorted((run for run in made.runs if f"-shared{shared}-" in run.recipe.name), key=lambda run: run.recipe.name)


def weights_of(run: Run) -> Weights:
    return ss.load(run.family_file, lambda: MLP(64, 10)).vertex(0)


@torch.no_grad()
def probabilities(run: Run, weights: Weights) -> tuple[Tensor, Tensor]:
    """What a network with these weights and statistics of its own answers, and the labels, without the study's code."""
    network = MLP(64, 10)
    network.load_state_dict(weights, strict=False)
    ss.recalibrate(network, statistics_batches(run.recipe, load_data(run.recipe), CPU))
    images, labels = images_of(run.folder, "test")
    return network.eval()(images).softmax(1), labels


def accuracy(answers: tuple[Tensor, Tensor]) -> float:
    return float((answers[0].argmax(1) == answers[1]).double().mean())


def test_branches_share_the_trunk_and_nothing_after_it(made: InstabilityStudy):
    assert len(made.runs) == 6
    for shared in (0, 2):
        logs = [[row["loss"] for row in run.log()] for run in branches(made, shared)]
        assert [len(log) for log in logs] == [4, 4, 4]
        assert len({tuple(log[:shared]) for log in logs}) == 1
        assert len({log[shared] for log in logs}) == 3


@pytest.mark.parametrize("shared", [0, 2])
def test_branches_average_and_ensemble_by_hand(made: InstabilityStudy, shared: int):
    runs = branches(made, shared)
    weights = [weights_of(run) for run in runs]
    answers = [probabilities(runs[0], own) for own in weights]
    for models in (2, 3):
        expected = [accuracy(answer) for answer in answers[:models]]
        assert made.accuracy(models, shared, "branch").values == pytest.approx(expected, abs=2e-3)
        average = {name: sum(own[name] for own in weights[:models]) / models for name in weights[0]}
        expected = [accuracy(probabilities(runs[0], average))]
        assert made.accuracy(models, shared, "average").values == pytest.approx(expected, abs=2e-3)
        mean = torch.stack([answer for answer, _ in answers[:models]]).mean(0)
        assert made.accuracy(models, shared, "ensemble").values == pytest.approx(
            [accuracy((mean, answers[0][1]))], abs=2e-3
        )
        labels = answers[0][1]
        nll = -mean[torch.arange(len(labels)), labels].log().mean().item()
        assert made.cells[models, shared, "ensemble"]["nll"].tolist() == pytest.approx([nll], rel=1e-4)


@pytest.mark.parametrize("kind", ["global", "layerwise", "per-weight"])
def test_mixtures_by_hand(made: InstabilityStudy, kind: Kind):
    """A coefficient for the network, for each layer or for each weight, drawn by hand from the same numbers."""
    runs = branches(made, 0)
    weights = [weights_of(run) for run in runs[:3]]
    accuracies = []
    for draw in range(2):
        state = randomness.stream(runs[0].recipe.seed, "mixtures", (kind, draw))

        def simplex(*size: int, state: Tensor = state) -> Tensor:
            exponential = -torch.log1p(-randomness.uniform(state, (*size, 3)))
            return exponential / exponential.sum(-1, keepdim=True)

        family = ss.Subspace.from_modules([MLP(64, 10) for _ in range(3)], ss.Simplex(3))
        if kind == "per-weight":
            entries = (entry for group in family.layout.groups for entry in group.entries)
            alphas = {entry.names[0]: simplex(*entry.shape) for entry in entries}
        else:
            drawn = simplex(len(family.layers)) if kind == "layerwise" else simplex().expand(len(family.layers), 3)
            alphas = {name: drawn[family.layers.index(name.rpartition(".")[0])] for name in weights[0]}
        mixed = {name: sum(alphas[name][..., i] * weights[i][name] for i in range(3)) for name in weights[0]}
        accuracies.append(accuracy(probabilities(runs[0], mixed)))
    assert made.accuracy(3, 0, kind).values == pytest.approx(accuracies, abs=2e-3)
    assert len(set(made.cells[3, 0, kind]["nll"])) == 2


def test_nothing_is_trained_or_measured_twice(made: InstabilityStudy):
    folder = folder_of(made)
    content = {path: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}
    settings = {**SETTINGS, "runs": folder.parent / "runs", "out": folder}
    runs = {run.folder: run.family_file.stat().st_mtime_ns for run in made.runs}
    study_instability("digits-standard", **settings)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"} == content
    assert {run.folder: run.family_file.stat().st_mtime_ns for run in made.runs} == runs
    entries = json.loads(content[folder / "measured.json"])["measured"]
    # A branch is measured once for both numbers of models, and the first one once for all.
    assert len(entries) == 2 * (3 + 2 * (2 + 3 * 2)) - 1


def test_what_was_stopped_continues(made: InstabilityStudy, tmp_path: Path):
    """As if it had been stopped after some measurements: those stay, the others come again to the same numbers."""
    some = json.loads((folder_of(made) / "measured.json").read_bytes())["measured"][:9]
    for each in some:
        Kept(tmp_path / "measured.json").add(each["key"], each["value"])
    again = study_instability("digits-standard", **SETTINGS, runs=folder_of(made).parent / "runs", out=tmp_path)
    assert again.frame.equals(made.frame)
    assert json.loads((tmp_path / "measured.json").read_bytes())["measured"][:9] == some


def test_panels_are_cut_where_mixtures_fail():
    plan = planned("cifar10-standard", Setting(seeds=[0, 1]), None, (2, 5), 3)
    assert plan.shared == [0, 5, 10, 20, 40, 80, 120]
    shares = {"branch": 0.9, "ensemble": 0.92}

    def study(low: float) -> InstabilityStudy:
        rows = [
            {"models": m, "shared": k, "kind": kind, "seed": i, "accuracy": shares.get(kind, low) + i / 1000}
            for m in plan.models
            for k in plan.shared
            for kind in KINDS
            for i in range(2)
        ]
        return InstabilityStudy(plan, pd.DataFrame(rows), [], 10_000)

    cut, whole = (study(low).draw() for low in (0.3, 0.89))
    assert [axes.get_title(loc="left") for axes in cut.axes] == [
        "average and ensemble of 2",
        "random mixtures of 2",
        "average and ensemble of 5",
    ]
    assert cut.axes[0].get_ylim()[0] == pytest.approx(85, abs=0.1)
    assert whole.axes[0].get_ylim()[0] < 89
    assert [len(figure.axes[1].lines) for figure in (cut, whole)] == [7, 4]  # triangles stand for what is below
    assert study(0.3).heading() == "cifar10 · cresnet20 · 160 epochs · 10,000 test images"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits-line"], "--method='line': branches are of one network"),
        (["digits-swag"], "--method='swag': branches are of one network"),
        (["digits-standard", "--shared", "60"], "--shared=60: expected at least 0 and less than the 60 epochs"),
        (["digits-standard", "--models", "1"], "--models=1: expected at least 2 and at most 255"),
        (["digits-standard", "--draws", "0"], "--draws=0"),
        (["digits-standard", "--keep-epoch", "3"], "--keep-epoch=3: the study sets it itself"),
    ],
)
def test_commands_that_cannot_work_say_why(arguments: list[str], message: str):
    result = CliRunner().invoke(app, ["study", "instability", *arguments], env={"COLUMNS": "240"})
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_command_shows_plan_table_and_json(made: InstabilityStudy):
    folder = folder_of(made)
    common = ["study", "instability", "digits-standard", "--epochs", "4", "--batch", "300", "--shared", "0", "2"]
    common += ["--models", "2", "3", "--draws", "2", "--device", "cpu", "--runs", str(folder.parent / "runs")]
    common += ["-o", str(folder)]

    def call(*more: str) -> str:
        result = CliRunner().invoke(app, [*common, *more], env={"COLUMNS": "240"})
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "0 of 6 runs would be trained" in call("--dry-run")
    assert json.loads(call("--json")) == json.loads((folder / "instability.json").read_bytes())
    assert f"{100 * made.accuracy(3, 2, 'average').values[0]:.2f}" in call("--quiet")


# Numbers in every form


@pytest.fixture(scope="module")
def unstable() -> InstabilityStudy:
    plan = planned(STANDARD, Setting(seeds=[1, 2]), [0, 7, 15], (2, 3, 5), 4)
    rows = [
        {"models": m, "shared": k, "kind": kind, "seed": at, **scores(m, k, kind, at)["test"]}
        for m in plan.models
        for k in plan.shared
        for kind in KINDS
        for at in range(KINDS.index(kind) + 1)
    ]
    return InstabilityStudy(plan, pd.DataFrame(rows), [], 30)


def spreads(study: InstabilityStudy, m: int, k: int, kind: str, metric: str) -> Expected:
    count = KINDS.index(kind) + 1  # type: ignore[arg-type]
    return Expected([scores(m, k, kind, at)["test"][metric] for at in range(count)], None)


def test_instability_tables(unstable: InstabilityStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)
    unstable.write(tmp_path)
    stored = json.loads((tmp_path / "instability.json").read_bytes())
    rows = list(csv.DictReader((tmp_path / "instability.csv").read_text().splitlines()))
    assert (stored["draws"], stored["images"], stored["models"], stored["shared"]) == (4, 30, [2, 3, 5], [0, 7, 15])
    keys = [(m, k, kind) for m in (2, 3, 5) for k in (0, 7, 15) for kind in KINDS]
    for found, row, key in zip(stored["cells"], rows, keys, strict=True):
        assert (found["models"], found["shared"], found["kind"]) == key
        assert (int(row["models"]), int(row["shared"]), row["kind"]) == key
        for metric in METRICS:
            one = spreads(unstable, *key, metric)
            one.check(found["metrics"][metric])
            check_csv(row, {f"{metric}_mean": one.mean, f"{metric}_std": one.std, "n": len(one.values)})
    head, _, *lines = cells_of((tmp_path / "instability.md").read_text())
    words = ["each branch", "weight average", "ensemble of outputs", "mixture, global", "mixture, layerwise"]
    assert head == ["models", "shared epochs", *(f"{word} %" for word in [*words, "mixture, per weight"])]
    table = []
    for m in (2, 3, 5):
        for k in (0, 7, 15):
            numbers = [spreads(unstable, m, k, kind, "accuracy").written("accuracy")[0] for kind in KINDS]
            table.append([str(m), str(k), *numbers])
    assert lines == table
