"""The instability analysis on digits: trunks that are shared, every kind of mixture by hand, resuming, the command."""

import csv
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import retrained
import torch
from pretended import scores
from study_cases import (
    CPU,
    METRICS,
    QUIET,
    STANDARD,
    Expected,
    cells_of,
    check_csv,
    images_of,
    load_data,
    without_pictures,
)
from torch import Tensor

import subspaces as ss
from subspaces.core import randomness
from subspaces.experiments.evaluating.run_subject import run_subjects
from subspaces.experiments.locks import Kept
from subspaces.experiments.studies.instability import (
    KINDS,
    InstabilityStudy,
    Kind,
    Mixing,
    shared_epochs,
    study_instability,
)
from subspaces.experiments.studies.instability import plan as planned
from subspaces.experiments.studies.setting import Setting
from subspaces.experiments.training import Execution, Run
from subspaces.experiments.training.batches import statistics_batches
from subspaces.experiments.training.recipe import find
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


def test_what_was_stopped_continues_and_nothing_is_done_twice(made: InstabilityStudy, tmp_path: Path):
    """As if it had been stopped after some measurements: those stay, the others come again to the same numbers."""
    folder = folder_of(made)
    every = json.loads((folder / "measured.json").read_bytes())["measured"]
    # A branch is measured once for both numbers of models, and the first one once for all.
    assert len(every) == 2 * (3 + 2 * (2 + 3 * 2)) - 1
    for each in every[:9]:
        Kept(tmp_path / "measured.json").add(each["key"], each["value"])
    runs = {run.folder: run.family_file.stat().st_mtime_ns for run in made.runs}
    again = study_instability("digits-standard", **SETTINGS, runs=folder.parent / "runs", out=tmp_path)
    assert again.frame.equals(made.frame)
    assert json.loads((tmp_path / "measured.json").read_bytes())["measured"][:9] == every[:9]
    assert {run.folder: run.family_file.stat().st_mtime_ns for run in made.runs} == runs
    for ending in ("json", "csv", "md"):
        name = f"instability.{ending}"
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("what", ["weights", "precision"])
def test_mixtures_are_measured_anew_for_other_weights_and_precisions(what: str, tmp_path: Path):
    folders = [retrained.train("standard", tmp_path, seed=at) for at in (1, 2)]

    def mixed(kept: str, precision: str) -> list[Any]:
        execution = Execution(device="cpu", precision=precision).resolved()  # type: ignore[arg-type]
        subject = run_subjects(None, execution)
        subjects = [subject(retrained.opened(folder)) for folder in folders]
        return list(Mixing(subjects, 1, Kept(tmp_path / kept), precision, {}).measure())

    before = mixed("a.json", "float32")
    if what == "weights":
        retrained.anew(folders[1])
    precision = "bfloat16" if what == "precision" else "float32"
    found = mixed("a.json", precision)
    assert found == mixed("fresh.json", precision)
    same = [kind for (kind, old), (_, new) in zip(before, found, strict=True) if old == new]
    assert same == (["branch"] if what == "weights" else [])  # the first, which was not trained anew


def test_panels_are_cut_where_mixtures_fail():
    plan = planned("cifar10-standard", Setting(seeds=[0, 1]), None, (2, 5), 3)
    assert plan.shared == [0, 5, 10, 20, 40, 80, 120]
    shares = {"branch": 0.9, "ensemble": 0.92}

    def study(low: float) -> InstabilityStudy:
        cells = itertools.product(plan.models, plan.shared, KINDS, range(2))
        rows = [(m, k, kind, i, shares.get(kind, low) + i / 1000) for m, k, kind, i in cells]
        frame = pd.DataFrame(rows, columns=["models", "shared", "kind", "seed", "accuracy"])
        return InstabilityStudy(plan, frame, [], 10_000)

    cut, whole = (study(low).draw() for low in (0.3, 0.89))
    titles = ["average and ensemble of 2", "random mixtures of 2", "average and ensemble of 5"]
    assert [axes.get_title(loc="left") for axes in cut.axes] == titles
    assert cut.axes[0].get_ylim()[0] == pytest.approx(85, abs=0.1)
    assert whole.axes[0].get_ylim()[0] < 89
    titles = [figure.legends[0].get_title().get_text() for figure in (cut, whole)]
    assert [title.endswith("below the panels") for title in titles] == [True, False]
    assert study(0.3).heading() == "cifar10 · cresnet20 · 160 epochs · 10,000 test images"


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("digits-line", {}, "method='line': branches are of one network"),
        ("digits-swag", {}, "method='swag': branches are of one network"),
        ("digits-standard", {"shared": [60]}, "shared=60: expected at least 0 and less than the 60 epochs"),
        ("digits-standard", {"models": [1]}, "models=1: expected at least 2 and at most 255"),
        ("digits-standard", {"draws": 0}, "draws=0"),
        ("digits-standard", {"keep_epoch": 3}, "keep_epoch=3: the study sets it itself"),
    ],
)
def test_errors_before_anything_is_trained(recipe: str, settings: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(ValueError, match=message):
        study_instability(recipe, runs=tmp_path / "runs", out=tmp_path / "to", **QUIET, **settings)
    assert list(tmp_path.iterdir()) == []


def test_every_form_has_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)
    plan = planned(STANDARD, Setting(seeds=[1, 2]), [0, 15], (2, 5), 4)
    keys, count = list(itertools.product((2, 5), (0, 15), KINDS)), {kind: at + 1 for at, kind in enumerate(KINDS)}
    planted = {(*key, at): scores(*key, at)["test"] for key in keys for at in range(count[key[2]])}
    names = ("models", "shared", "kind", "seed")
    rows = [{**dict(zip(names, key, strict=True)), **numbers} for key, numbers in planted.items()]
    InstabilityStudy(plan, pd.DataFrame(rows), [], 30).write(tmp_path)
    stored = json.loads((tmp_path / "instability.json").read_bytes())
    table = list(csv.DictReader((tmp_path / "instability.csv").read_text().splitlines()))
    texts = {}
    for found, row, key in zip(stored["cells"], table, keys, strict=True):
        assert (found["models"], found["shared"], found["kind"]) == key
        assert (int(row["models"]), int(row["shared"]), row["kind"]) == key
        for metric in METRICS:
            one = Expected([planted[*key, at][metric] for at in range(count[key[2]])], None)
            one.check(found["metrics"][metric])
            check_csv(row, {f"{metric}_mean": one.mean, f"{metric}_std": one.std, "n": len(one.values)})
            texts[key, metric] = one.written(metric)[0]
    head, _, *lines = cells_of((tmp_path / "instability.md").read_text())
    words = ["each branch", "weight average", "ensemble of outputs", "mixture, global", "mixture, layerwise"]
    assert head == ["models", "shared epochs", *(f"{word} %" for word in [*words, "mixture, per weight"])]
    cells = {(m, k): [texts[(m, k, kind), "accuracy"] for kind in KINDS] for m in (2, 5) for k in (0, 15)}
    assert lines == [[str(m), str(k), *numbers] for (m, k), numbers in cells.items()]


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_short_trainings_share_less_than_all_of_their_epochs(epochs: int):
    recipe = replace(find("digits-standard"), epochs=epochs)
    assert max(shared_epochs(recipe, None)) < epochs
