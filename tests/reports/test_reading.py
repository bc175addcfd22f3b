"""Runs read from their folders and grouped by recipe over seeds."""

import dataclasses
import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import made_runs
import numpy as np
import pytest
from helpers import resealed

from subspaces.evaluation.record import Record
from subspaces.experiments.training import RECIPES, Execution, Recipe, seals
from subspaces.experiments.training.runs import Run, RunError
from subspaces.reports.answers import first, headed
from subspaces.reports.reading import Curve, Reading, gather


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    return made_runs.family(tmp_path_factory.mktemp("runs"), seeds=(0, 1))


def test_runs_of_one_recipe_are_one_group_in_the_order_of_their_seeds(made):
    (group,) = gather(reversed(made["line"]))
    assert group.label == "line"
    assert group.seeds == [0, 1]
    assert [run.folder for run in group.runs] == made["line"]


def test_groups_come_in_one_order_however_they_are_given(made):
    folders = [folder for name in ("simplex3", "curve", "line", "line-beta0", "simplex2") for folder in made[name]]
    labels = [group.label for group in gather([*folders, *made["standard"]])]
    assert labels == [
        "standard",
        "line, β = 0",
        "line",
        "curve",
        "simplex (m = 2)",
        "simplex (m = 3)",
    ]
    assert labels == [group.label for group in gather([*made["standard"], *reversed(folders)])]


def test_only_what_differs_is_in_a_label(made, tmp_path: Path):
    longer = made_runs.run(tmp_path, "standard", epochs=20)
    labels = [group.label for group in gather([made["standard"][0], longer])]
    assert labels == ["standard, epochs = 12", "standard, epochs = 20"]
    assert gather(made["line-layerwise"])[0].label == "line, layerwise"


def labels_of(out: Path, *recipes: Recipe) -> list[str]:
    """Return the labels of recipes as runs of them would get."""
    runs = [Run.under(out, recipe) for recipe in recipes]
    for run in runs:
        run.start(Execution(device="cpu").resolved())
    groups = gather([run.folder for run in runs], evaluated=False)
    labels = {group.recipe.key: group.label for group in groups}
    return [labels[recipe.key] for recipe in recipes]


def test_what_most_recipes_have_in_common_is_told_only_where_it_differs(tmp_path: Path):
    names = ("standard", "line", "simplex", "ema", "integral")
    recipes = [RECIPES[f"digits-{name}"] for name in names]
    assert {recipe.learning_rate for recipe in recipes[:4]} == {0.1}
    expected = ["standard", "line", "simplex (m = 3)", "ema", "integral, learning rate = 0.02"]
    assert labels_of(tmp_path, *recipes) == expected


def test_without_a_majority_a_field_is_told_for_all(tmp_path: Path):
    standard = RECIPES["digits-standard"]
    for rates, told in (
        ((0.1, 0.2), (True, True)),
        ((0.1, 0.1, 0.2), (False, False, True)),
        ((0.1, 0.1, 0.2, 0.2), (True,) * 4),
        ((0.1, 0.1, 0.2, 0.3), (True,) * 4),
        ((0.1, 0.1, 0.1, 0.2, 0.3), (False, False, False, True, True)),
    ):
        methods = [replace(standard, weight_decay=k / 100, learning_rate=rate) for k, rate in enumerate(rates)]
        labels = labels_of(tmp_path / str(len(list(tmp_path.iterdir()))), *methods)
        assert [f"learning rate = {rate:g}" in label for label, rate in zip(labels, rates, strict=True)] == list(told)


def test_what_is_there_is_told_also_where_most_have_it(tmp_path: Path):
    standard = RECIPES["digits-standard"]
    smooth = [replace(standard, method=name, label_smoothing=0.1) for name in ("standard", "line")]
    labels = labels_of(tmp_path, standard, *smooth)
    assert labels == ["standard", "standard, label smoothing = 0.1", "line, label smoothing = 0.1"]


def test_no_two_groups_have_one_label(tmp_path: Path):
    fields = {"dropout": (0.0, 0.1), "learning_rate": (0.1, 0.1000001), "beta": (0.0, 1.0), "batch": (32, 64)}
    several = [dict(zip(fields, values, strict=True)) for values in itertools.product(*fields.values())]
    recipes = [replace(RECIPES["digits-line"], **each) for each in several]
    chosen = np.random.default_rng(0)
    for turn in range(20):
        some = [recipes[k] for k in chosen.permutation(len(recipes))[: 2 + turn % 6]]
        assert len(set(labels_of(tmp_path / str(turn), *some))) == len(some)


def test_a_field_that_means_nothing_makes_no_group(tmp_path: Path):
    folders = [made_runs.run(tmp_path, "standard", seed=seed, trunk=trunk) for seed, trunk in ((0, 0), (1, 2))]
    assert [group.seeds for group in gather(folders)] == [[0, 1]]


BASELINES = {
    "swa-cyclic": ("swa-cyclic (m = 2)", "interval"),
    "swag": ("swag (m = 3)", "simplex"),
    "snapshot": ("snapshot (m = 4)", "simplex"),
    "ema": ("ema", "single"),
    "sam": ("sam", "single"),
}


def test_baselines_are_read_as_the_shape_of_their_result(made, tmp_path: Path):
    fields = {"swa-cyclic": {"vertices": 2}, "swag": {"vertices": 3}, "snapshot": {"vertices": 4}}
    folders = []
    for name in BASELINES:
        recipe = dataclasses.replace(RECIPES[f"digits-{name}"], epochs=12, **fields.get(name, {}))
        run = Run.under(tmp_path, recipe)
        run.start(Execution(device="cpu").resolved())
        folders.append(run.folder)
    groups = gather([*made["standard"], *made["line"], *folders], evaluated=False)
    labels = ["standard", "line", *(label for label, _ in BASELINES.values())]
    assert [group.label.partition(", decay")[0].partition(", ρ")[0] for group in groups] == labels
    for group, (_, kind) in zip(groups[2:], BASELINES.values(), strict=True):
        (run,) = group.runs
        assert run.single == (kind == "single")
        assert run.interval == (kind == "interval")
        assert run.vertices == run.recipe.result_shape().vertices


def test_what_is_not_there_is_not_in_a_label(tmp_path: Path):
    names = ("standard", "label-smoothing", "early-stopping")
    runs = [Run.under(tmp_path, RECIPES[f"digits-{name}"]) for name in names]
    for run in runs:
        run.start(Execution(device="cpu").resolved())
    labels = [group.label for group in gather([run.folder for run in runs], evaluated=False)]
    assert labels == ["standard", "standard, label smoothing = 0.1", "early-stopping, validation = 200"]


def test_a_folder_given_twice_is_read_once(made):
    folder = made["line"][0]
    (group,) = gather([folder, folder / ".." / folder.name])
    assert len(group.runs) == 1


def test_a_copy_of_a_run_is_refused(made, tmp_path: Path):
    shutil.copytree(made["line"][0], tmp_path / "copy")
    with pytest.raises(RunError, match=r"are the same run: leave one of them out"):
        gather([made["line"][0], tmp_path / "copy"])


def test_mean_and_spread_over_seeds_are_those_of_the_records(made):
    (group,) = gather(made["line"])
    records = [Record.read(folder) for folder in made["line"]]
    curve = group.along("ece", "test")
    expected = np.array(
        [[row.metrics["ece"] for row in record.rows if row.kind == "point"] for record in records]
    )  # the builder writes them in order
    assert curve.grid.tolist() == [k / 20 for k in range(21)]
    assert np.array_equal(curve.values, expected)
    assert np.allclose(curve.mean, expected.sum(0) / 2)
    assert np.allclose(curve.std, np.abs(expected[0] - expected[1]) / np.sqrt(2))  # n - 1 for two seeds


def test_one_seed_has_no_spread():
    assert Curve(np.zeros(2), np.array([[1.0, 2.0]])).std.tolist() == [0, 0]


def test_pairs_are_sorted_by_the_smaller_alpha_and_by_how_they_are_averaged(made):
    run = Reading(made["curve"][0])
    for average in ("probabilities", "logits"):
        pairs = run.pairs("test", average)
        assert list(pairs) == [k / 20 for k in range(11)]
        assert {row.average for row in pairs.values()} == {average}
    assert Reading(made["simplex3"][0]).pairs("test") == {}


def test_what_stands_for_a_run(made):
    assert Record.read(made["standard"][0]).answer("midpoint").alphas == [0.0]
    assert len(headed(gather(made["standard"]), "test")) == 1
    assert Record.read(made["line"][0]).answer("midpoint").alphas == [0.5]
    assert Record.read(made["line"][0]).answer("pair").alphas == [0.1, 0.9]
    assert Record.read(made["simplex4"][0]).answer("midpoint").alphas == [[0.25] * 4]
    assert Record.read(made["simplex4"][0]).answer("vertices").alphas == np.eye(4).tolist()


def test_the_log_is_read_where_every_seed_has_it(made):
    (group,) = gather(made["line"], evaluated=False)
    assert group.logged("l2").grid.tolist() == list(range(1, 13))
    tested = group.logged("test_accuracy")
    assert tested.grid.tolist() == [4, 8, 12]
    assert tested.values.shape == (2, 3)


def test_an_epoch_that_one_seed_has_not_is_left_out(made):
    (group,) = gather(made["line"], evaluated=False)
    whole = group.logged("loss")
    for run in group.runs:
        run.log[:] = run.log[1:] if run is group.runs[1] else run.log[:-2]
    shorter = group.logged("loss")
    assert shorter.grid.tolist() == list(range(2, 11))
    assert np.array_equal(shorter.values, whole.values[:, 1:-2])


def changed(folder: Path, to: Path, **fields) -> Path:
    """Copy a run with another evaluation."""
    shutil.copytree(folder, to)
    dataclasses.replace(Record.read(folder), **fields).write(to)
    return to


def test_runs_of_different_data_sets_are_refused(made, tmp_path: Path):
    shutil.copytree(made["line"][0], tmp_path / "other")
    recipe = dataclasses.replace(Run.open(made["line"][0]).recipe, dataset="mnist")
    seals.write_json(tmp_path / "other" / "config.json", recipe.to_dict(), recipe.key)
    with pytest.raises(RunError, match=r"is of 'digits' and .*other of 'mnist': expected runs on one data set"):
        gather([made["standard"][0], tmp_path / "other"])


def test_evaluations_on_other_images_are_refused(made, tmp_path: Path):
    record = Record.read(made["line"][0])
    dataset = {**record.dataset, "splits": {"test": 10}}
    other = changed(made["line"][0], tmp_path / "other", dataset=dataset)
    with pytest.raises(RunError, match=r"with 297 test images and .* with 10: evaluate them alike"):
        gather([made["standard"][0], other])


def test_an_evaluation_of_another_configuration_is_refused(made, tmp_path: Path):
    record = Record.read(made["line"][0])
    other = changed(made["line"][0], tmp_path / "other", recipe={**record.recipe, "beta": 0.25})
    with pytest.raises(RunError, match="another configuration"):
        gather([other])
    resealed(other / "evaluation.json", lambda values: values.update(recipe={"nonsense": 1}))
    with pytest.raises(RunError, match=r"evaluation\.json is damaged \(a recipe has no field 'nonsense'"):
        gather([other])


def test_seeds_evaluated_at_different_alphas_are_shown_at_those_of_all(made, tmp_path: Path):
    (whole,) = gather(made["line"])
    rows = [row for row in Record.read(made["line"][1]).rows if row.alphas != [0.25]]
    other = changed(made["line"][1], tmp_path / "other", rows=rows)
    (group,) = gather([made["line"][0], other])
    curve, full = group.along("accuracy", "test"), whole.along("accuracy", "test")
    kept = full.grid != 0.25
    assert kept.sum() == len(full.grid) - 1
    assert np.array_equal(curve.grid, full.grid[kept])
    assert np.array_equal(curve.values, full.values[:, kept])


def test_seeds_without_alphas_in_common_are_refused(made, tmp_path: Path):
    rows = [row for row in Record.read(made["line"][1]).rows if row.kind == "ensemble" or row.role == "midpoint"]
    other = changed(made["line"][1], tmp_path / "other", rows=rows)
    (group,) = gather([made["line"][0], other])
    with pytest.raises(RunError, match="'line' were evaluated at different alphas"):
        group.along("accuracy", "test")


def test_what_was_not_measured_is_named(made, tmp_path: Path):
    (group,) = gather(made["line"])
    with pytest.raises(ValueError, match=r"metric='acuracy': did you mean 'accuracy'\?"):
        group.along("acuracy", "test")
    with pytest.raises(RunError, match=r"was not evaluated on 'tset': did you mean 'test'\?"):
        group.along("accuracy", "tset")
    empty = changed(made["line"][0], tmp_path / "empty", rows=[])
    with pytest.raises(RunError, match="not evaluated on 'test': run `subspaces evaluate"):
        first(gather([empty])[0], "test")
    rows = [row for row in Record.read(made["line"][0]).rows if row.role != "midpoint"]
    without = changed(made["line"][0], tmp_path / "without", rows=rows)
    with pytest.raises(RunError, match="has no midpoint on 'test'"):
        first(gather([without])[0], "test")


def test_no_runs_and_folders_that_are_none_are_refused(made, tmp_path: Path):
    with pytest.raises(ValueError, match="runs got nothing: expected run folders"):
        gather([])
    with pytest.raises(ValueError, match="no runs were given"):
        gather([tmp_path])
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunError, match="is not a run folder"):
        gather([tmp_path])
    shutil.copytree(made["line"][0], tmp_path / "raw", ignore=shutil.ignore_patterns("evaluation.json"))
    with pytest.raises(RunError, match=r"has no evaluation\.json: run `subspaces evaluate"):
        gather([tmp_path / "raw"])
    assert gather([tmp_path / "raw"], evaluated=False)[0].label == "line"
