"""Evaluations of several runs: grouped by what was trained, over seeds, as curves and answers; means and intervals."""

import dataclasses
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation import curves
from subspaces.evaluation.comparing import Group, each_answer, first, groups_of, headed
from subspaces.evaluation.curves import Curve
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.statistics import compare, paired, shown, shown_difference, signed, spread
from subspaces.experiments.opening import opened, training_of
from subspaces.experiments.training import RECIPES, Recipe, run_files
from subspaces.experiments.training.runs import Run, RunError

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
import made_runs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    return made_runs.family(tmp_path_factory.mktemp("runs"), seeds=(0, 1))


def groups(folders, **options) -> list[Group]:
    return groups_of(opened(folders, **options))


def labels_of(*recipes: Recipe) -> list[str]:
    """Return the labels of recipes as evaluations of runs of them would get."""
    several = [
        Evaluation(recipe.key, {"kind": "single"}, "", [], [], {}, {}, {}, training=training_of(recipe))
        for recipe in recipes
    ]
    found = {one.evaluations[0].name: one.label for one in groups_of(several)}
    return [found[recipe.key] for recipe in recipes]


# Groups and what they are called


def test_runs_of_one_recipe_are_one_group_in_the_order_of_their_seeds(made):
    (group,) = groups(list(reversed(made["line"])))
    assert (group.label, group.seeds) == ("line", [0, 1])
    assert [one.name for one in group.evaluations] == [folder.name for folder in made["line"]]


def test_groups_come_in_one_order_however_they_are_given(made):
    folders = [folder for name in ("simplex3", "curve", "line", "line-beta0", "simplex2") for folder in made[name]]
    labels = [group.label for group in groups([*folders, *made["standard"]])]
    assert labels == ["standard", "line, β = 0", "line", "curve", "simplex (m = 2)", "simplex (m = 3)"]
    assert labels == [group.label for group in groups([*made["standard"], *reversed(folders)])]
    assert groups(made["line-layerwise"])[0].label == "line, layerwise"


def test_what_most_recipes_have_in_common_is_told_only_where_it_differs():
    recipes = [RECIPES[f"digits-{name}"] for name in ("standard", "line", "simplex", "ema", "integral")]
    assert labels_of(*recipes) == ["standard", "line", "simplex (m = 3)", "ema", "integral, learning rate = 0.02"]
    standard = RECIPES["digits-standard"]
    for rates, told in (
        ((0.1, 0.2), (True, True)),
        ((0.1, 0.1, 0.2), (False, False, True)),
        ((0.1, 0.1, 0.2, 0.2), (True,) * 4),
        ((0.1, 0.1, 0.1, 0.2, 0.3), (False, False, False, True, True)),
    ):
        methods = [replace(standard, weight_decay=k / 100, learning_rate=rate) for k, rate in enumerate(rates)]
        found = zip(labels_of(*methods), rates, strict=True)
        assert [f"learning rate = {rate:g}" in label for label, rate in found] == list(told)
    smooth = [replace(standard, method=name, label_smoothing=0.1) for name in ("standard", "line")]
    expected = ["standard", "standard, label smoothing = 0.1", "line, label smoothing = 0.1"]
    assert labels_of(standard, *smooth) == expected


# Which are opened


def test_a_folder_given_twice_is_read_once_and_a_copy_is_refused(made, tmp_path: Path):
    folder = made["line"][0]
    assert len(opened([folder, folder / ".." / folder.name])) == 1
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(ArgumentError, match="are the same run: leave one of them out"):
        groups([folder, tmp_path / "copy"])


def changed(folder: Path, to: Path, **fields) -> Path:
    """Copy a run with another evaluation."""
    shutil.copytree(folder, to)
    dataclasses.replace(Evaluation.load(folder), **fields).save(to)
    return to


def test_runs_on_other_data_are_refused(made, tmp_path: Path):
    (tmp_path / "other").mkdir()
    recipe = dataclasses.replace(Run.open(made["line"][0]).recipe, dataset="mnist")
    run_files.write_json(tmp_path / "other" / "config.json", recipe.to_dict(), recipe.key)
    with pytest.raises(RunError, match=r"is of 'digits' and .*other of 'mnist': expected runs on one data set"):
        opened([made["standard"][0], tmp_path / "other"], alike=False)
    dataset = {**Evaluation.load(made["line"][0]).dataset, "splits": {"test": 10}}
    fewer = changed(made["line"][0], tmp_path / "fewer", dataset=dataset)
    with pytest.raises(RunError, match=r"with 297 test images and .* with 10: evaluate them alike"):
        opened([made["standard"][0], fewer])


# Curves


def test_mean_and_spread_over_seeds_are_those_of_the_records(made):
    (group,) = groups(made["line"])
    records = [Evaluation.load(folder) for folder in made["line"]]
    curve = curves.along(group, "ece")
    expected = np.array([[row.metrics["ece"] for row in one.rows if row.kind == "point"] for one in records])
    assert curve.grid.tolist() == [k / 20 for k in range(21)]
    assert np.array_equal(curve.values, expected)
    assert np.allclose(curve.mean, expected.sum(0) / 2)
    assert np.allclose(curve.std, np.abs(expected[0] - expected[1]) / np.sqrt(2))  # n - 1 for two seeds
    assert Curve(np.zeros(2), np.array([[1.0, 2.0]])).std.tolist() == [0, 0]


def test_the_log_is_read_where_every_seed_has_it(made):
    (group,) = groups(made["line"], alike=False)
    whole = curves.logged(group, "loss")
    assert whole.grid.tolist() == list(range(1, 13))
    assert curves.logged(group, "test_accuracy").grid.tolist() == [4, 8, 12]
    for one, part in zip(group.evaluations, (slice(1, None), slice(None, -2)), strict=True):
        one.training.log[:] = one.training.log[part]
    shorter = curves.logged(group, "loss")
    assert shorter.grid.tolist() == list(range(2, 11))
    assert np.array_equal(shorter.values, whole.values[:, 1:-2])


def test_seeds_evaluated_at_different_alphas_are_shown_at_those_of_all(made, tmp_path: Path):
    full, rows = curves.along(groups(made["line"])[0], "accuracy"), Evaluation.load(made["line"][1]).rows
    other = changed(made["line"][1], tmp_path / "other", rows=[row for row in rows if row.alphas != [0.25]])
    curve, kept = curves.along(groups([made["line"][0], other])[0], "accuracy"), full.grid != 0.25
    assert np.array_equal(curve.grid, full.grid[kept])
    assert np.array_equal(curve.values, full.values[:, kept])
    few = [row for row in rows if row.kind == "ensemble" or row.role == "midpoint"]
    apart = changed(made["line"][1], tmp_path / "apart", rows=few)
    with pytest.raises(UserError, match="'line' were evaluated at different alphas"):
        curves.along(groups([made["line"][0], apart])[0], "accuracy")


def test_what_was_not_measured_is_named(made, tmp_path: Path):
    (group,) = groups(made["line"])
    with pytest.raises(ArgumentError, match=r"metric='acuracy': did you mean 'accuracy'\?"):
        curves.along(group, "acuracy")
    with pytest.raises(UserError, match=r"was not evaluated on 'tset': did you mean 'test'\?"):
        curves.along(group, "accuracy", "tset")
    empty = changed(made["line"][0], tmp_path / "empty", rows=[])
    with pytest.raises(UserError, match="not evaluated on 'test': run `subspaces evaluate"):
        first(groups([empty])[0])
    rows = [row for row in Evaluation.load(made["line"][0]).rows if row.role != "midpoint"]
    without = changed(made["line"][0], tmp_path / "without", rows=rows)
    with pytest.raises(UserError, match="has no midpoint on 'test'"):
        first(groups([without])[0])


# Answers


def test_answers_over_seeds_and_what_stands_for_a_group(made):
    for name, words in (
        ("standard", ["network"]),
        ("line", ["midpoint", "ensemble of 0.1 and 0.9"]),
        ("simplex3", ["midpoint", "ensemble of 3 vertices"]),
    ):
        (group,) = groups(made[name])
        assert [each.words for each in headed([group])] == words
        for each in headed([group]):
            rows = each.curves()
            assert each.spread("nll").values == [row.nll for row in rows]
            assert (each.seeds, each.networks) == ([0, 1], rows[0].networks)
    (line,) = groups(made["line"])
    ends = next(each for each in each_answer(line, alone=True) if each.kind == "alone")
    found = [[row.nll for row in Evaluation.load(f).rows if row.alphas in ([0.0], [1.0])] for f in made["line"]]
    assert ends.spread("nll").values == pytest.approx(np.mean(found, axis=1))


def test_comparisons_are_paired_by_the_seed(made):
    line, standard = (each_answer(groups(made[name])[0])[0] for name in ("line", "standard"))
    both = compare(line.frame, standard.frame, "ece")
    ours, theirs = (np.array(each.spread("ece").values) for each in (line, standard))
    assert both.difference.values == pytest.approx(ours - theirs)
    one = standard.frame.iloc[:1]
    part = compare(line.frame, one, "ece")
    assert part.seeds == [0]
    assert compare(line.frame.iloc[1:], one, "ece") is None


numbers = st.floats(-1, 1)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=8))
def test_paired_differences_are_those_of_scipy(pairs: list[tuple[float, float]]) -> None:
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    found = paired(list(first), list(second))
    assert found.values == pytest.approx(list(first - second))
    assert found.mean == pytest.approx(np.mean(first - second))
    assert found.low is not None
    assert found.high is not None
    if np.std(first - second) < 1e-9:
        assert found.high - found.low < 1e-6
        return
    interval = scipy.stats.ttest_rel(first, second).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)


def test_as_text() -> None:
    assert shown(spread([0.91, 0.93]), 100) == "92.00 ± 1.41"
    assert shown(spread([0.91]), digits=4) == "0.9100"
    assert shown_difference(paired([0.93, 0.95], [0.92, 0.91]), 100, 1) == "+2.5 [−16.6, +21.6]"
    assert shown_difference(paired([0.9], [0.92]), 100, 1) == "−2.0"
    assert [signed(value, 2) for value in (0.004, -0.004, 0.006, -0.006)] == ["0.00", "0.00", "+0.01", "−0.01"]
