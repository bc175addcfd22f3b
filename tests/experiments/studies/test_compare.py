"""One table of several methods: its numbers, its costs, ensembles of runs, going on after a stop, and errors."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from study_cases import CPU, LINE, METRICS, QUIET, SIMPLEX, SMALL, STANDARD, images_of, network_of, without_pictures
from torch import Tensor

import subspaces as ss
from subspaces.core import storage
from subspaces.evaluation import METRICS as MEASURES
from subspaces.evaluation.classification import Classes
from subspaces.evaluation.predictor import Predictor
from subspaces.experiments.studies.compare import Comparison, training_images
from subspaces.experiments.studies.setting import states
from subspaces.experiments.studies.tables import entries_of
from subspaces.experiments.training import Recipe, Run, RunError, Stopped
from subspaces.reports.figures import style

ANSWERS = [
    *(("digits-standard", answer) for answer in ("network", "ensemble of 2 runs", "ensemble of 3 runs")),
    ("digits-dropout", "network"),
    *(("digits-line", answer) for answer in ("midpoint", "ensemble of 0.1 and 0.9")),
    *(("digits-simplex", answer) for answer in ("midpoint", "ensemble of 3 vertices", "ensemble of 6 random points")),
]
SCALED = ", temperature-scaled"


RECIPES = [STANDARD, replace(STANDARD, name="digits-dropout", dropout=0.3), LINE, SIMPLEX]
SHARED: dict[str, Any] = {"seeds": range(4), "ensembles": [2, 3], **SMALL}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compared")


@pytest.fixture(scope="module")
def comparison(folder: Path) -> Comparison:
    """Standard training, one with dropout, a line and a simplex, with four seeds each."""
    with pytest.MonkeyPatch.context() as patch:
        without_pictures(patch)
        return ss.compare(RECIPES, **SHARED, runs=folder / "runs", out=folder / "to")


@pytest.fixture(autouse=True)
def _figures_that_are_drawn_and_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare tests the pixels and fonts of figures that they draw again; that of the comparison they share is whole."""
    monkeypatch.setattr(style, "save", lambda figure, path: storage.write(path, path.suffix.encode()))


@pytest.fixture
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)


def test_every_way_to_answer_is_there_once_with_its_cost(comparison: Comparison, folder: Path) -> None:
    written = json.loads((folder / "to" / "comparison.json").read_text())
    found = [(entry["recipe"]["name"], entry["answer"]) for entry in written["entries"]]
    scaled = [(recipe, f"{answer}{SCALED}") for recipe, answer in ANSWERS if "runs" not in answer]
    assert sorted(found) == sorted([*ANSWERS, *scaled])  # by a temperature from held-out images
    assert [written[name] for name in ("seeds", "training_images", "images")] == [[0, 1, 2, 3], 1000, 597]
    assert len(comparison.runs) == 16
    for entry in written["entries"]:
        runs = int(entry["answer"].split()[2]) if "runs" in entry["answer"] else 1
        assert entry["training_network_steps"] == runs * 8  # of 1 epoch of 1000 images in batches of 128
        assert entry["training_relative"] == runs


def test_the_data_says_how_many_images_a_network_without_batch_norm_was_trained_on(comparison: Comparison) -> None:
    record = replace(comparison.groups[0].evaluations[0], statistics={"images": 0})
    recipe = comparison.runs[0].recipe
    assert training_images(recipe, record, None) == 1200 - recipe.validation
    with pytest.raises(RunError, match="is not known without its data; see --data"):
        training_images(replace(recipe, dataset="imagenet"), record, Path("nowhere"))


def test_what_was_measured_beside_does_not_stand_for_an_answer(comparison: Comparison) -> None:
    """Another number of random points, and other pairs, as `evaluate` with other options leaves them."""
    expected = {entry.named: entry for entry in comparison.entries}
    recipes = {run.folder.name: run.recipe for run in comparison.runs}
    for group in (one for one in comparison.groups if one.training.settings["method"] in ("line", "simplex")):
        recipe, made = recipes[group.evaluations[0].name], []
        for one in group.evaluations:
            ensembles = [row for row in one.rows if row.kind == "ensemble" and row.role in ("random", "along")]
            fewer = [replace(row, alphas=row.alphas[:3], metrics={}) for row in ensembles if row.role == "random"]
            nearby = [replace(row, alphas=[0.11, 0.89], metrics={}) for row in ensembles if row.alphas == [0.1, 0.9]]
            made.append(replace(one, rows=[*fewer, *nearby, *one.rows]))
        for entry in entries_of(replace(group, evaluations=made), recipe, ["test", "validation"], 1000):
            for metric in METRICS:
                for split in ("test", "validation"):
                    assert entry.spread(metric, split) == expected[entry.named].spread(metric, split)
        made = [replace(one, rows=one.rows[:1]) for one in made]
        with pytest.raises(RunError, match=r"has no .* on 'test': run `subspaces evaluate "):
            entries_of(replace(group, evaluations=made), recipe, ["test"], 1000)


def test_notes_say_how_wide_few_seeds_are(comparison: Comparison) -> None:
    assert not any("it is wide" in note for note in comparison.notes())

    def first(n: int) -> Comparison:
        single = [entry for entry in comparison.entries if entry.runs == 1]
        entries = [replace(entry, frame=entry.frame.iloc[:n]) for entry in single]
        runs = [run for run in comparison.runs if run.recipe.seed < n]
        return replace(comparison, entries=entries, reference=entries[0], runs=runs)

    assert any("With 2 seeds the interval reaches 12.7" in note for note in first(2).notes())
    assert first(1).notes()[0] == "Trained once (seed 0)."
    alone = replace(comparison, reference=None).notes()
    assert any("No standard training is among the recipes" in note for note in alone)


# Going on


def test_the_same_again_trains_and_measures_nothing(
    comparison: Comparison, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is missing")

    before = {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*.*") if path.name != ".lock"}
    written = (folder / "to" / "comparison.json").read_bytes()
    monkeypatch.setattr("subspaces.experiments.training.scheduling.train_group", fail)
    monkeypatch.setattr(Predictor, "outputs", fail)
    shutil.copy(folder / "to" / "ensembles.json", tmp_path)
    ss.compare(RECIPES, **SHARED, runs=folder / "runs", out=tmp_path)
    assert (tmp_path / "comparison.json").read_bytes() == written
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.usefixtures("_no_pictures")
def test_what_was_stopped_continues(comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while it measures and started again, it comes to the same table."""

    def call() -> Comparison:
        settings = {**SMALL, "ensembles": [2], "runs": tmp_path / "runs", "out": tmp_path / "to"}
        return ss.compare([STANDARD, LINE], seeds=[0, 1], **settings)

    real, seen = Predictor.outputs, [0]

    def stopping(self: Predictor, *arguments: Any, **how: Any) -> Any:
        seen[0] += 1
        if seen[0] == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self, *arguments, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "outputs", stopping)
        with pytest.raises(Stopped):
            call()
    assert seen == [10]
    assert not (tmp_path / "to" / "comparison.json").exists()
    results = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/result.json")}
    assert len(results) == 4
    made = call()
    assert {path: path.stat().st_mtime_ns for path in results} == results
    for entry in made.entries:
        (same,) = (one for one in comparison.entries if one.named == entry.named)
        for metric in METRICS:
            assert entry.spread(metric).values == same.spread(metric).values[: entry.count]


def test_a_plan_says_what_is_left(comparison: Comparison, folder: Path, tmp_path: Path) -> None:
    recipes = [run.recipe for run in comparison.runs[:3]]
    for run in comparison.runs[:2]:
        shutil.copytree(run.folder, tmp_path / run.folder.name)
    (tmp_path / comparison.runs[1].folder.name / "evaluation.json").unlink()
    (begun := Run.under(tmp_path, replace(LINE, seed=9))).start(CPU)
    begun.save_checkpoint({}, {"epoch": 1})
    planned = states([*recipes, begun.recipe], tmp_path)
    assert [state for _, state in planned] == ["evaluated", "to evaluate", "to train", "to continue"]
    assert not planned[2][0].folder.exists()


# Other forms


def test_baselines_answer_in_their_own_way(tmp_path: Path) -> None:
    names = ("standard", "swa-cyclic", "snapshot", "early-stopping", "sam", "label-smoothing")
    settings = {**QUIET, "epochs": 8, "validation": 200, "runs": tmp_path / "runs", "out": tmp_path / "to"}
    made = ss.compare([f"digits-{name}" for name in names], **settings)
    plain = [entry for entry in made.entries if not entry.words.endswith(SCALED)]
    assert len(made.entries) == 2 * len(plain)
    assert {entry.named: (entry.networks, entry.relative_cost(made.reference)) for entry in plain} == {
        "standard, network": (1, 1),
        "standard, label smoothing = 0.1, network": (1, 1),
        "swa-cyclic (m = 3), average of 3": (1, 1),
        "swa-cyclic (m = 3), ensemble of 3 checkpoints": (3, 1),
        "snapshot (m = 6), ensemble of 6 members": (6, 1),
        "early-stopping, network": (1, 1),
        "sam, network": (1, 2),
    }


def test_seeds_that_are_not_shared_are_told(tmp_path: Path) -> None:
    recipes = [replace(STANDARD, seed=0), replace(STANDARD, seed=1), replace(LINE, seed=1), replace(LINE, seed=2)]

    def compared(name: str, *some: Recipe) -> Comparison:
        return ss.compare(some, runs=tmp_path / "runs", out=tmp_path / name, **QUIET, epochs=1)

    notes = compared("both", *recipes).notes()
    assert "Mean ± standard deviation (n − 1) over the seeds of each method." in notes
    assert "No difference is given for line: standard, network lacks some of its seeds." in notes
    apart, alone = compared("apart", recipes[0], recipes[3]), compared("alone", recipes[3])
    assert apart.notes()[0] == "Trained once (the seeds of each method)."
    assert not any("interval" in note or "Second line" in note for note in apart.notes())
    assert alone.reference is None
    assert [entry.words for entry in alone.entries] == ["midpoint", "ensemble of 0.1 and 0.9"]
    for name in ("apart", "alone"):
        assert not (tmp_path / name / "comparison.png").exists()
        assert "±" not in (tmp_path / name / "comparison.md").read_text().split("\n- ")[0]


@pytest.mark.parametrize(
    ("recipes", "settings", "words"),
    [
        ([STANDARD, replace(LINE, label_noise=0.1)], {}, "--label-noise sets it for all"),
        ([STANDARD, replace(LINE, data_seed=3)], {}, "has data seed 0 and digits-line 3"),
        (["digits-line"], {"ensembles": [2], "seeds": [0, 1]}, "of which there are 0"),
        ([], {}, "recipe got nothing: expected a Recipe"),
    ],
)
def test_errors_before_anything_is_trained(
    recipes: list[Any], settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=words):
        ss.compare(recipes, runs=tmp_path / "runs", out=tmp_path / "to", **QUIET, **settings)
    assert list(tmp_path.iterdir()) == []


def expect(metrics: dict[str, float], probabilities: Tensor, labels: Tensor) -> None:
    p, y = probabilities.double().numpy(), labels.numpy()
    p /= p.sum(1, keepdims=True)
    assert metrics["accuracy"] == pytest.approx(accuracy_score(y, p.argmax(1)), abs=1e-9)
    assert metrics["nll"] == pytest.approx(log_loss(y, p, labels=range(10)), abs=1e-5)
    assert metrics["brier"] == pytest.approx(brier_score_loss(y, p, labels=range(10), scale_by_half=False), abs=1e-5)
    assert metrics["ece"] == pytest.approx(MEASURES["ece"](Classes(probabilities.log()), labels), abs=2 / len(y))


def runs_of(comparison: Comparison, name: str) -> list[Run]:
    return [run for run in comparison.runs if run.recipe.name == name]


@torch.no_grad()
def test_an_ensemble_is_the_mean_of_probabilities_of_its_runs(comparison: Comparison) -> None:
    runs = runs_of(comparison, "digits-standard")
    for size, seeds in ((2, [(0, 1), (2, 3)]), (3, [(0, 1, 2)])):
        (entry,) = (entry for entry in comparison.entries if entry.words == f"ensemble of {size} runs")
        assert list(entry.frame["seeds"]) == seeds
        assert entry.networks == size
        for members in seeds:
            for split, frame in (("test", entry.frame), ("validation", entry.held_out)):
                x, y = images_of(runs[0].folder, split)
                each = [network_of(runs[seed].folder)(x).softmax(1) for seed in members]
                expect(frame.set_index("seeds").loc[[members]].iloc[0], torch.stack(each).mean(0), y)
