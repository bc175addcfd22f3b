"""Studies over a grid: every number in every form against the records, what is chosen, going on, and errors."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pretended import Pretended, scores
from study_cases import (
    LINE,
    METRICS,
    PLAIN,
    QUIET,
    SMALL,
    STANDARD,
    Expected,
    cells_of,
    check_csv,
    pretend,
    row_of,
    without_pictures,
)

from subspaces.experiments.studies import study_grid, study_integral, study_noise
from subspaces.experiments.studies.choices import GridStudy
from subspaces.experiments.studies.grid import LISTS, methods_of
from subspaces.experiments.training import Run

SEEDS, LEVELS, RATES = [1, 4, 6], [0.0, 0.4], (0.1, 0.2, 0.8)
Made = tuple[GridStudy, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A study of pretended runs."""
    folder = tmp_path_factory.mktemp("pretended")
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, Pretended())
        without_pictures(patch)
        settings: dict[str, Any] = {"levels": LEVELS[::-1], "by": "nll", "seeds": SEEDS}
        lists = {"dropout": RATES[::-1], "label_smoothing": (0.0, *RATES)}
        line = replace(LINE, validation=PLAIN.validation)
        study = study_noise([line, PLAIN], lists=lists, runs=folder / "r", out=folder / "to", show="quiet", **settings)
        return study, folder


def runs_of(made: Made, level: float, **fields: Any) -> list[Run]:
    """The runs of a setting, found in the folder."""
    wanted = {"method": "standard", "dropout": 0.0, "label_smoothing": 0.0, "label_noise": level, **fields}
    found = [run for run in made[0].runs if all(getattr(run.recipe, name) == value for name, value in wanted.items())]
    assert sorted(run.recipe.seed for run in found) == SEEDS
    return sorted(found, key=lambda run: run.recipe.seed)


def values_of(runs: list[Run], answer: str, metric: str, split: str = "test") -> list[float]:
    return [row_of(run, answer, split)[metric] for run in runs]


LINES = [
    ("line", "midpoint", None),
    ("line", "ensemble of 0.1 and 0.9", None),
    ("standard", "network", None),
    ("standard", "ensemble of 2 runs", None),
    ("dropout", "network", "dropout"),
    ("label smoothing", "network", "label_smoothing"),
]
ALL_LINES = [(level, *line) for level in LEVELS for line in LINES]


def means(made: Made, level: float, answer: str, setting: str, split: str) -> dict[float, float]:
    """The NLL of each setting on a split, mean over the seeds."""
    runs = {rate: runs_of(made, level, **{setting: rate}) for rate in RATES}
    return {rate: float(np.mean(values_of(some, answer, "nll", split))) for rate, some in runs.items()}


def chosen(made: Made, level: float, answer: str, setting: str | None, split: str = "validation") -> float | None:
    """The setting with the lowest NLL on a split."""
    if setting is None:
        return None
    found = means(made, level, answer, setting, split)
    return min(found, key=lambda rate: found[rate])


def expected(made: Made, line: tuple[Any, ...], metric: str) -> Expected:
    """A metric of a line on the test set, with the setting that held-out images choose."""
    level, method, answer, setting = line
    plain = values_of(runs_of(made, level), "network", metric)
    if "runs" in answer:
        names = [run.folder.name for run in runs_of(made, level)[:2]]
        return Expected([scores("together", *names)["test"][metric]], [float(np.mean(plain[:2]))])
    fields = {"method": "line"} if method == "line" else {}
    if setting is not None:
        fields = {setting: chosen(made, level, answer, setting)}
    values = values_of(runs_of(made, level, **fields), answer, metric)
    return Expected(values, None if (method, answer) == ("standard", "network") else plain)


def test_json_has_every_number_and_what_was_chosen_on_held_out_images(made: Made) -> None:
    stored = json.loads((made[1] / "to" / "noise.json").read_bytes())
    assert (stored["chosen_by"], stored["levels"], stored["seeds"]) == ("nll", LEVELS, SEEDS)
    other = 0
    for found, line in zip(stored["lines"], ALL_LINES, strict=True):
        level, _, answer, setting = line
        assert (found["label_noise"], found["method"], found["answer"], found["setting"]) == line
        assert found["chosen_on"] == (None if setting is None else "validation")
        assert found["chosen"] == chosen(made, level, answer, setting)
        other += found["chosen"] != chosen(made, level, answer, setting, "test")
        for metric in METRICS:
            one = expected(made, line, metric)
            one.check(found["metrics"][metric])
            one.check_difference(found["metrics"][metric]["difference"])
        if setting is not None:
            splits = {split: means(made, level, answer, setting, split) for split in ("test", "validation")}
            tried = [{split: pytest.approx(each[rate]) for split, each in splits.items()} for rate in RATES]
            assert [(one["value"], one["nll"]) for one in found["candidates"]] == list(zip(RATES, tried, strict=True))
    assert other  # or the test could not tell the splits apart


def test_csv_and_markdown_have_every_number(made: Made) -> None:
    with open(made[1] / "to" / "noise.csv") as file:
        rows = list(csv.DictReader(file))
    head, _, *cells = cells_of((made[1] / "to" / "noise.md").read_text())
    assert head == ["noise %", "method", "answer", "chosen", "accuracy %", "NLL", "Brier score", "ECE %"]
    for row, written, line in zip(rows, cells, ALL_LINES, strict=True):
        level, method, answer, setting = line
        own = chosen(made, level, answer, setting)
        assert [float(row["label_noise"]), row["method"], row["answer"], row["setting"]] == [*line[:3], setting or ""]
        check_csv(row, {"chosen": own})
        numbers = {metric: expected(made, line, metric) for metric in METRICS}
        for metric, one in numbers.items():
            check_csv(row, one.columns(metric))
            assert int(row["n"]) == len(one.values)
        setting_cell = "–" if own is None else f"{own:g}"
        texts = ["<br>".join(one.written(metric)) for metric, one in numbers.items()]
        assert written == [f"{100 * level:g}", method, answer, setting_cell, *texts]


def test_the_figure_has_every_method_and_level(made: Made) -> None:
    drawing: Any = made[0].draw()
    own = [("line", "midpoint"), ("standard", "network"), ("standard", "ensemble of 2 runs"), ("dropout", "network")]
    own.append(("label smoothing", "network"))
    names = ["line", "standard", "standard: ensemble of 2 runs", "dropout", "label smoothing"]
    (legend,) = drawing.legends
    assert [text.get_text() for text in legend.texts] == names
    for axes, metric in zip(drawing.axes, ("accuracy", "ece"), strict=True):
        assert axes.get_ylabel() == {"accuracy": "accuracy (%)", "ece": "ECE (%)"}[metric]
        bands = iter(axes.collections)
        for name, handle, curve in zip(own, legend.legend_handles, axes.lines, strict=True):
            found = [expected(made, line, metric) for line in ALL_LINES if line[1:3] == name]
            assert list(curve.get_xdata()) == [0, 40]
            assert list(curve.get_ydata()) == pytest.approx([100 * one.mean for one in found])
            assert curve.get_color() == handle.get_color()
            if found[0].std is not None:
                edge = next(bands).get_paths()[0].vertices[:, 1]
                assert edge.max() == pytest.approx(max(100 * (one.mean + (one.std or 0)) for one in found))
                assert edge.min() == pytest.approx(min(100 * (one.mean - (one.std or 0)) for one in found))


def test_what_was_tried_and_not_chosen_leaves_no_note(made: Made) -> None:
    notes = made[0].notes()
    assert any("“chosen” is the setting with the best nll on 20 held-out images" in note for note in notes)
    assert any("Only training labels are noisy" in note for note in notes)
    alone = replace(made[0], choices=[each for each in made[0].choices if each.setting is None])
    assert not any("chosen" in note for note in alone.notes())
    assert "chosen" not in alone.tables()[0].columns


# Real runs


def test_the_same_again_trains_and_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"levels": [0.4], "lists": {"label_smoothing": (0.1, 0.8)}, "seeds": [0, 1], **SMALL}

    def call() -> list[Path]:
        return study_noise([STANDARD, LINE], runs=tmp_path / "runs", out=tmp_path / "to", **settings).files

    files = [path.read_bytes() for path in call()]
    monkeypatch.setattr("subspaces.experiments.training.scheduling.train_group", lambda *_: pytest.fail("again"))
    monkeypatch.setattr("subspaces.evaluation.predictor.Predictor.outputs", None)
    assert [path.read_bytes() for path in call()] == files
    names = [f"noise.{ending}" for ending in ("json", "csv", "md", "png", "pdf")]
    assert [path.name for path in call()] == names


def test_a_grid_of_epochs_leaves_what_does_not_use_a_setting_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pictures(monkeypatch)
    settings: dict[str, Any] = {**QUIET, "runs": tmp_path / "runs"}
    study = study_grid([STANDARD, LINE], "epochs", [2, 1], seeds=[3], out=tmp_path / "epochs", **settings)
    assert [(each.value, each.chosen.recipe.epochs) for each in study.choices if each.method == "standard"] == [
        (1, 1),
        (2, 2),
    ]
    assert study.tables()[0].columns[0] == "epochs"
    (line,) = (each for each in study.choices if (each.value, each.answer) == (2, "midpoint"))
    assert line.reference is not None
    assert line.reference.recipe.epochs == 2
    assert (tmp_path / "epochs" / "epochs.csv").read_text().startswith("epochs,method,answer")
    settings |= {"epochs": 1, "seeds": [3], "out": tmp_path / "beta"}
    study = study_grid([STANDARD, LINE], "beta", [0, 1], **settings)
    assert [each.chosen.recipe.beta for each in study.choices if each.answer == "midpoint"] == [0, 1]
    assert len(list((tmp_path / "runs").iterdir())) == 2 + 2 + 1


def test_integral_is_compared_at_every_level_with_one_learning_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pictures(monkeypatch)
    recipes = [f"digits-{name}" for name in ("standard", "line", "integral")]
    where: dict[str, Any] = {"runs": tmp_path / "runs", "out": tmp_path / "to"}
    study = study_integral(recipes, levels=[0.4, 0.0], seeds=[0], epochs=2, batch=300, **where, **QUIET)
    answers = [
        ("standard", "network"),
        ("line", "midpoint"),
        ("line", "ensemble of 0.1 and 0.9"),
        ("integral", "network"),
    ]
    assert [(each.value, each.method, each.answer) for each in study.choices] == [
        (level, *answer) for level in (0.0, 0.4) for answer in answers
    ]
    assert len(study.runs) == 6
    assert {run.recipe.learning_rate for run in study.runs} == {0.02}
    assert sorted(path.name for path in (tmp_path / "to").glob("integral.*")) == [
        *("integral.csv", "integral.json", "integral.md")
    ]


# What is asked for


def test_methods_are_named_by_what_is_added_to_them() -> None:
    assert dict.fromkeys(("dropout", "label_smoothing"), (0.05, 0.1, 0.2, 0.4, 0.8)) == LISTS  # as in the paper
    smooth, longer = replace(LINE, label_smoothing=0.1), replace(LINE, name="digits-longer", epochs=99)
    for recipes, lists, labels in (
        ([STANDARD, LINE, smooth], {}, ["standard", "line", "line, label smoothing = 0.1"]),
        ([LINE, longer], {}, ["digits-line", "digits-longer"]),
        ([STANDARD], {"dropout": [0.1]}, ["standard", "dropout"]),
    ):
        assert [method.label for method in methods_of(recipes, lists)] == labels


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"levels": [0.5, 1.5]}, "label_noise=1.5: expected a fraction"),
        ({"levels": []}, "no levels of label noise were given"),
        ({"recipe": "digits-line"}, "a list of dropout: expected a standard recipe"),
        ({"lists": {"dropouts": [0.1]}}, r"lists={'dropouts': …}: did you mean 'dropout'\?"),
        ({"seeds": [0], "ensembles": [2]}, "ensembles=2: expected 2 or more and as many seeds"),
    ],
)
def test_errors_before_anything_is_trained(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    usual: dict[str, Any] = {"levels": [0.0], "lists": {"dropout": [0.1]}, "seeds": [0, 1], **SMALL}
    where = {"recipe": [STANDARD], "runs": tmp_path / "a", "out": tmp_path / "b"}
    with pytest.raises(ValueError, match=words):
        study_noise(**{**usual, **where, **settings})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda **where: study_grid(["digits-line"], "epoch", [1], **where),
            r"epoch=…: no such setting; did you mean 'ep",
        ),
        (lambda **where: study_grid(["digits-line"], "epochs", [1.5], **where), "epochs=1.5: expected an integer"),
        (
            lambda **where: study_grid([LINE, replace(LINE, name="other", beta=2.0)], "beta", [1], **where),
            "beta=1: digits-line and other are the same training there",
        ),
        (lambda **where: study_integral(["digits-line"], **where), "no recipe has the method integral"),
        (lambda **where: study_integral(["digits-integral"], epsilon=0.3, **where), "epsilon=0.3: expected 1 divided"),
        (
            lambda **where: study_integral(["digits-integral"], layerwise=True, **where),
            "layerwise=True: integral makes no",
        ),
    ],
)
def test_a_grid_that_cannot_be_says_why(call: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        call(runs=tmp_path / "a", out=tmp_path / "b", **QUIET)
    assert list(tmp_path.iterdir()) == []
