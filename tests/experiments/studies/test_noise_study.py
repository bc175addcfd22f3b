"""The label-noise study: what is chosen where, its table and figure, going on, and errors."""

import copy
import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import resealed
from number_cases import METRICS
from study_cases import LINE, NO_FIGURE, SMALL, STANDARD, environments_of, without_matplotlib
from subspaces.experiments.studies.noise_levels import Line, NoiseStudy, methods_of

from subspaces.evaluation import Record
from subspaces.experiments.studies import study_noise
from subspaces.experiments.studies.entries import Entry
from subspaces.experiments.studies.noise import LISTS
from subspaces.experiments.studies.tables import rows_as_csv
from subspaces.experiments.training import RECIPES, Run

RATES = (0.1, 0.8)
SETTINGS: dict[str, Any] = {
    "levels": [0.4, 0.0],
    "lists": {"dropout": RATES, "label_smoothing": (0.0, *RATES)},
    "seeds": [0, 1],
    "dropout_passes": 3,
    **SMALL,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("noise")


@pytest.fixture(scope="module")
def study(place: Path) -> NoiseStudy:
    return study_noise([STANDARD, LINE], runs=place / "runs", out=place / "to", **SETTINGS)


@pytest.fixture(scope="module")
def written(study: NoiseStudy, place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "to" / "noise.json").read_text())
    return found


def accuracies(place: Path, split: str, answer: str, **fields: float) -> list[float]:
    """The accuracy of all seeds of a setting, read from the run folders alone."""
    wanted = {"method": "standard", "dropout": 0.0, "label_smoothing": 0.0, **fields}
    found = {}
    for folder in (place / "runs").iterdir():
        run = Run.open(folder)
        if all(getattr(run.recipe, name) == value for name, value in wanted.items()):
            role = {"network": "midpoint", "MC-dropout": "dropout"}[answer]
            rows = [row for row in Record.read(folder).rows if (row.role, row.split) == (role, split)]
            (row,) = (row for row in rows if row.average in (None, "probabilities"))
            found[run.recipe.seed] = row.metrics["accuracy"]
    return [found[seed] for seed in sorted(found)]


def test_all_lines_are_there_in_order(written: dict[str, Any]) -> None:
    expected = [
        ("standard", "network"),
        ("standard", "ensemble of 2 runs"),
        ("line", "midpoint"),
        ("line", "ensemble of 0.1 and 0.9"),
        ("dropout", "network"),
        ("dropout", "MC-dropout, 3 passes"),
        ("label smoothing", "network"),
    ]
    found = [(line["label_noise"], line["method"], line["answer"]) for line in written["lines"]]
    assert found == [(level, *names) for level in (0.0, 0.4) for names in expected]


def test_the_best_on_held_out_images_is_reported_and_the_best_on_test_is_beside_it(
    written: dict[str, Any], place: Path
) -> None:
    checked = 0
    for line in written["lines"]:
        if line["setting"] is None:
            assert (line["chosen"], line["chosen_on"], line["best_on_test"]) == (None, None, None)
            continue
        level, setting, answer = line["label_noise"], line["setting"], line["answer"].split(",")[0]
        by = {
            split: {
                rate: np.mean(accuracies(place, split, answer, label_noise=level, **{setting: rate})) for rate in RATES
            }
            for split in ("validation", "test")
        }
        assert line["chosen"] == max(RATES, key=lambda rate: by["validation"][rate])
        assert line["best_on_test"] == max(RATES, key=lambda rate: by["test"][rate])
        assert line["chosen_on"] == "validation"
        assert line["metrics"]["accuracy"]["mean"] == pytest.approx(by["test"][line["chosen"]])
        best = line["metrics_best_on_test"]["accuracy"]["mean"]
        assert best == pytest.approx(by["test"][line["best_on_test"]])
        assert best >= line["metrics"]["accuracy"]["mean"]
        assert [each["value"] for each in line["candidates"]] == list(RATES)
        checked += 1
    assert checked == 6


def test_differences_are_to_standard_training_at_the_same_level(written: dict[str, Any], place: Path) -> None:
    for line in written["lines"]:
        if (line["method"], line["answer"]) == ("label smoothing", "network"):
            standard = accuracies(place, "test", "network", label_noise=line["label_noise"])
            expected = np.subtract(line["metrics"]["accuracy"]["values"], standard)
            assert line["differences"]["accuracy"]["values"] == pytest.approx(expected)


def test_a_choice_on_the_test_set_is_marked(study: NoiseStudy, place: Path) -> None:
    text = (place / "to" / "noise.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith(("| 0 ", "| 40 "))]
    assert len(lines) == len(study.lines)
    for row, line in zip(lines, study.lines, strict=True):
        assert (row.count(" * |") == 2) == (line.setting is not None)
        assert f"| {line.method} | {line.answer} |" in row
    assert "* is the best on the test set itself" in text


def shown(value: float | None) -> str:
    """A number in a cell of a CSV file."""
    return "" if value is None else str(value)


def test_csv_has_the_differences_and_what_was_chosen_on_test_where_something_was(
    written: dict[str, Any], place: Path
) -> None:
    with open(place / "to" / "noise.csv") as file:
        rows = list(csv.DictReader(file))
    filled = []
    for row, line in zip(rows, written["lines"], strict=True):
        chose = line["setting"] is not None
        assert row["best_on_test"] == (shown(line["best_on_test"]) if chose else "")
        for metric in METRICS:
            values, best = line["metrics"][metric], line["metrics_best_on_test"][metric]
            difference = line["differences"][metric] or dict.fromkeys(("mean", "low", "high"))
            for part in ("mean", "std"):
                assert row[f"{metric}_{part}"] == shown(values[part])
                assert row[f"{metric}_{part}_best_on_test"] == (shown(best[part]) if chose else "")
            for part in ("mean", "low", "high"):
                assert row[f"{metric}_difference_{part}"] == shown(difference[part])
        filled.append((row["accuracy_difference_low"] != "", row["accuracy_mean_best_on_test"] != ""))
    level = [(False, False), (False, False), (True, False), (True, False), *[(True, True)] * 3]
    assert filled == 2 * level  # the reference and the only ensemble have no interval


def test_one_value_in_a_list_is_no_choice(study: NoiseStudy) -> None:
    line = next(line for line in study.lines if line.setting == "dropout")
    alone = replace(line, candidates=[line.chosen], on_test=line.chosen)
    (row,) = csv.DictReader(rows_as_csv(replace(study, lines=[alone]).rows()["noise"]).splitlines())
    assert row["chosen"] == str(line.value(line.chosen))
    assert {value for name, value in row.items() if name.endswith("best_on_test")} == {""}


def test_it_says_where_runs_of_all_levels_were_trained(study: NoiseStudy, written: dict[str, Any]) -> None:
    folders = [run.folder for comparison in study.comparisons for run in comparison.runs]
    assert written["environments"] == environments_of(folders)
    levels = [[run.folder for run in comparison.runs] for comparison in study.comparisons]
    assert [one["environments"] for one in written["comparisons"]] == [environments_of(level) for level in levels]


def test_environments_of_a_second_level_are_there_too(study: NoiseStudy, tmp_path: Path) -> None:
    first, second = study.comparisons
    folder = tmp_path / second.runs[0].folder.name
    shutil.copytree(second.runs[0].folder, folder)
    resealed(folder / "environment.json", lambda values: values["starts"][0].update(hardware="elsewhere"))
    moved = replace(second, runs=[Run.open(folder), *second.runs[1:]])
    found = replace(study, comparisons=[first, moved]).summary()["environments"]
    assert sum(one["hardware"] == "elsewhere" for one in found) == 1


def test_early_stopping_chooses_by_accuracy_whatever_by_is(study: NoiseStudy) -> None:
    def told(study: NoiseStudy) -> list[str]:
        return [note for note in study.notes() if note.startswith("early-stopping")]

    assert told(study) == []
    line = study.lines[0]
    reading = copy.copy(line.chosen.group.runs[0])
    reading.recipe = replace(line.chosen.recipe, method="early-stopping")
    stopping = replace(line, chosen=replace(line.chosen, group=replace(line.chosen.group, runs=[reading])))
    (note,) = told(replace(study, by="nll", lines=[*study.lines, stopping]))
    assert "by the accuracy on held-out images, whatever metric chooses settings (here nll)" in note


def test_notes_are_of_what_is_reported(study: NoiseStudy) -> None:
    """A setting that was tried and not chosen has no interval in the table, and so none that is explained."""
    line = next(line for line in study.lines if line.setting == "label_smoothing")
    (other,) = (entry for entry in line.candidates if entry is not line.chosen)
    comparison = study.comparisons[study.levels.index(line.level)]
    reference = comparison.reference
    assert reference is not None
    better = {seeds: {k: v + 0.1 for k, v in one.items()} for seeds, one in reference.by_seeds.items()}
    equal = replace(other, by_seeds=better)

    def explained(*entries: Entry, lines: list[Line]) -> bool:
        changed = [replace(one, entries=[*one.entries, *entries]) for one in study.comparisons]
        notes = replace(study, comparisons=changed, lines=lines).notes()
        return any("without width" in note for note in notes)

    standard = [one for one in study.lines if (one.method, one.answer) == ("standard", "network")]
    assert not explained(equal, lines=standard)
    assert explained(equal, lines=[*standard, replace(line, chosen=equal)])


def test_a_figure_of_every_method(study: NoiseStudy, place: Path) -> None:
    assert [path.name for path in study.files] == [f"noise.{ending}" for ending in ("json", "csv", "md", "png", "pdf")]
    drawn = study.own_lines()
    assert list(drawn) == ["standard", "standard: ensemble of 2 runs", "line", "dropout", "label smoothing"]
    assert all([line.level for line in lines] == [0.0, 0.4] for lines in drawn.values())


def test_without_matplotlib_the_numbers_are_there(
    study: NoiseStudy, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subspaces.experiments.studies.tables.write_figure", without_matplotlib)
    made = study.write(tmp_path)
    assert made.left_out == [NO_FIGURE]
    assert [path.name for path in made.files] == ["noise.json", "noise.csv", "noise.md"]
    assert all(path.read_bytes() == (place / "to" / path.name).read_bytes() for path in made.files)


def test_the_title_is_of_all_levels(study: NoiseStudy, place: Path) -> None:
    title = f"{STANDARD.dataset} · {SMALL['network']} · label noise · 597 test images"
    assert study.heading() == title
    assert (place / "to" / "noise.md").read_text().startswith(f"# {title}\n")


def test_the_same_again_trains_nothing(study: NoiseStudy, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = (place / "to" / "noise.json").read_bytes()
    monkeypatch.setattr("subspaces.experiments.training.groups.train_runs", None)
    monkeypatch.setattr("subspaces.evaluation.predictor.Predictor.__call__", None)
    study_noise([STANDARD, LINE], runs=place / "runs", out=place / "to", **SETTINGS)
    assert (place / "to" / "noise.json").read_bytes() == written


def test_the_lists_are_those_of_the_paper() -> None:
    assert dict.fromkeys(("dropout", "label_smoothing"), (0.05, 0.1, 0.2, 0.4, 0.8)) == LISTS
    recipes = [RECIPES["cifar10-standard"], RECIPES["cifar10-simplex"]]
    with pytest.raises(ValueError, match="validation=0: the best dropout is chosen on held-out images"):
        methods_of(recipes, LISTS)
    assert [method.label for method in methods_of(recipes, {"dropout": [0.1]})] == [
        "standard",
        "simplex (m = 3)",
        "dropout",
    ]


def test_methods_are_named_by_what_is_added_to_them() -> None:
    smooth = replace(LINE, label_smoothing=0.1)
    assert [method.label for method in methods_of([STANDARD, LINE, smooth], {})] == [
        *("standard", "line", "line, label smoothing = 0.1")
    ]
    longer = replace(LINE, name="digits-longer", epochs=99)
    assert [method.label for method in methods_of([LINE, longer], {})] == ["digits-line", "digits-longer"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"label_noise": 0.2}, "label_noise=0.2: the study has levels of it instead"),
        ({"levels": [0.5, 1.5]}, "label_noise=1.5: expected a fraction"),
        ({"levels": []}, "no levels of label noise were given"),
        ({"by": "acuracy"}, "unknown metric 'acuracy': did you mean 'accuracy'"),
        ({"recipe": "digits-line"}, "a list of dropout: expected a standard recipe"),
        ({"seeds": [0], "ensembles": [2]}, "ensembles=2: expected 2 or more and as many seeds"),
    ],
)
def test_errors_before_anything_is_trained(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        study_noise(**{"recipe": [STANDARD], **SETTINGS, "runs": tmp_path / "a", "out": tmp_path / "b", **settings})
    assert list(tmp_path.iterdir()) == []
