"""The label-noise study: what is chosen where, its table and figure, going on, and errors."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from number_cases import METRICS
from study_cases import LINE, SMALL, STANDARD

from subspaces.experiments.studies import study_noise
from subspaces.experiments.studies.entries import Entry
from subspaces.experiments.studies.noise import LISTS, Line, NoiseStudy, methods_of
from subspaces.experiments.training import RECIPES

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


def test_early_stopping_chooses_by_accuracy_whatever_by_is(study: NoiseStudy) -> None:
    def told(study: NoiseStudy) -> list[str]:
        return [note for note in study.notes() if note.startswith("early-stopping")]

    assert told(study) == []
    line = study.lines[0]
    recipe = replace(line.chosen.recipe, method="early-stopping")
    stopping = replace(line, chosen=replace(line.chosen, recipe=recipe))
    (note,) = told(replace(study, by="nll", lines=[*study.lines, stopping]))
    assert "by the accuracy on held-out images, whatever metric chooses settings (here nll)" in note


def test_notes_are_of_what_is_reported(study: NoiseStudy) -> None:
    """A setting that was tried and not chosen has no interval in the table, and so none that is explained."""
    line = next(line for line in study.lines if line.setting == "label_smoothing")
    (other,) = (entry for entry in line.candidates if entry is not line.chosen)
    comparison = study.comparisons[study.levels.index(line.level)]
    reference = comparison.reference
    assert reference is not None
    better = reference.frame.assign(**{name: reference.frame[name] + 0.1 for name in METRICS})
    equal = replace(other, frame=better)

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


def test_the_same_again_trains_nothing(study: NoiseStudy, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = (place / "to" / "noise.json").read_bytes()
    monkeypatch.setattr("subspaces.experiments.training.scheduling.train_group", None)
    monkeypatch.setattr("subspaces.evaluation.predictor.Predictor.outputs", None)
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
