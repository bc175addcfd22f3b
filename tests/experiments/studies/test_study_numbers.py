"""Every number of the noise and the Integral study, in every form, against the records; and what is chosen."""

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from number_cases import METRICS, PLAIN, Expected, cells_of, check_csv, row_of
from pretended import Pretended, scores
from study_cases import LINE, pretend, without_pictures

from subspaces.experiments.studies import study_noise
from subspaces.experiments.studies.integral import Identity, IntegralStudy
from subspaces.experiments.studies.noise import NoiseStudy
from subspaces.experiments.training import Run

SEEDS, LEVELS, RATES = [1, 4, 6], [0.0, 0.4], (0.1, 0.2, 0.8)
LOWER = {"accuracy": False, "nll": True, "brier": True, "ece": True, "adaptive_ece": True, "aurc": True}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[NoiseStudy, Path]:
    folder = tmp_path_factory.mktemp("pretended")
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, Pretended())
        without_pictures(patch)
        settings: dict[str, Any] = {"levels": LEVELS[::-1], "by": "nll", "seeds": SEEDS, "dropout_passes": 7}
        lists = {"dropout": RATES[::-1], "label_smoothing": RATES}
        line = replace(LINE, validation=PLAIN.validation)
        study = study_noise([line, PLAIN], lists=lists, runs=folder / "r", out=folder / "to", show="quiet", **settings)
        return study, folder


def runs_of(made: tuple[NoiseStudy, Path], level: float, **fields: Any) -> list[Run]:
    """The runs of a setting, found in the folder."""
    wanted = {"method": "standard", "dropout": 0.0, "label_smoothing": 0.0, "label_noise": level, **fields}
    found = [run for comparison in made[0].comparisons for run in comparison.runs]
    found = [run for run in found if all(getattr(run.recipe, name) == value for name, value in wanted.items())]
    assert sorted(run.recipe.seed for run in found) == SEEDS
    return sorted(found, key=lambda run: run.recipe.seed)


def values_of(runs: list[Run], answer: str, metric: str, split: str = "test") -> list[float]:
    if "passes" in answer:
        return [scores("dropout", run.folder.name, 7)[split][metric] for run in runs]
    return [row_of(run, answer, split)[metric] for run in runs]


LINES = [
    ("line", "midpoint", None),
    ("line", "ensemble of 0.1 and 0.9", None),
    ("standard", "network", None),
    ("standard", "ensemble of 2 runs", None),
    ("dropout", "network", "dropout"),
    ("dropout", "MC-dropout, 7 passes", "dropout"),
    ("label smoothing", "network", "label_smoothing"),
]
ALL_LINES = [(level, *line) for level in LEVELS for line in LINES]


def chosen(made: tuple[NoiseStudy, Path], level: float, answer: str, setting: str | None, split: str) -> float | None:
    """The setting with the lowest NLL on a split, mean over the seeds."""
    if setting is None:
        return None
    means = {rate: np.mean(values_of(runs_of(made, level, **{setting: rate}), answer, "nll", split)) for rate in RATES}
    return min(means, key=lambda rate: means[rate])


def expected(made: tuple[NoiseStudy, Path], line: tuple[Any, ...], metric: str, split: str = "validation") -> Expected:
    """A metric of a line on the test set, with the setting that a split chooses."""
    level, method, answer, setting = line
    plain = values_of(runs_of(made, level), "network", metric)
    if "runs" in answer:
        names = [run.folder.name for run in runs_of(made, level)[:2]]
        return Expected([scores("together", *names)["test"][metric]], [float(np.mean(plain[:2]))])
    fields = {"method": "line"} if method == "line" else {}
    if setting is not None:
        fields = {setting: chosen(made, level, answer, setting, split)}
    values = values_of(runs_of(made, level, **fields), answer, metric)
    return Expected(values, None if (method, answer) == ("standard", "network") else plain)


def test_the_choices_on_both_splits_differ_somewhere(made: tuple[NoiseStudy, Path]) -> None:
    """Or the tests below could not tell them apart."""
    both = [[chosen(made, *line[:1], *line[2:], split) for line in ALL_LINES] for split in ("validation", "test")]
    assert both[0] != both[1]


def test_noise_json(made: tuple[NoiseStudy, Path]) -> None:
    stored = json.loads((made[1] / "to" / "noise.json").read_bytes())
    assert (stored["chosen_by"], stored["levels"], stored["seeds"]) == ("nll", LEVELS, SEEDS)
    for found, line in zip(stored["lines"], ALL_LINES, strict=True):
        level, _, answer, setting = line
        assert (found["label_noise"], found["method"], found["answer"], found["setting"]) == line
        assert found["chosen_on"] == (None if setting is None else "validation")
        assert found["chosen"] == chosen(made, level, answer, setting, "validation")
        assert found["best_on_test"] == chosen(made, level, answer, setting, "test")
        for metric in METRICS:
            one = expected(made, line, metric)
            one.check(found["metrics"][metric])
            one.check_difference(found["differences"][metric])
            expected(made, line, metric, "test").check(found["metrics_best_on_test"][metric])
        tried = []
        for rate in RATES if setting else ():
            runs = runs_of(made, level, **{str(setting): rate})
            means = {split: np.mean(values_of(runs, answer, "nll", split)) for split in ("test", "validation")}
            tried.append({"value": rate, "nll": pytest.approx(means)})
        assert found["candidates"] == tried


def test_noise_csv(made: tuple[NoiseStudy, Path]) -> None:
    with open(made[1] / "to" / "noise.csv") as file:
        rows = list(csv.DictReader(file))
    for row, line in zip(rows, ALL_LINES, strict=True):
        level, method, answer, setting = line
        assert [float(row["label_noise"]), row["method"], row["answer"], row["setting"]] == [
            *(level, method, answer, setting or "")
        ]
        names = {"chosen": chosen(made, level, answer, setting, "validation")}
        names["best_on_test"] = chosen(made, level, answer, setting, "test")
        check_csv(row, names)
        for metric in METRICS:
            one, best = (expected(made, line, metric, split) for split in ("validation", "test"))
            check_csv(row, one.columns(metric))
            for part in ("mean", "std"):
                value = None if setting is None else getattr(best, part)
                check_csv(row, {f"{metric}_{part}_best_on_test": value})
            assert int(row["n"]) == len(one.values)


def cells(made: tuple[NoiseStudy, Path], line: tuple[Any, ...]) -> list[list[str]]:
    level, method, answer, setting = line
    numbers = [expected(made, line, metric).written(metric) for metric in METRICS]
    marked = ["–", "–"]
    own = "–"
    if setting is not None:
        own = f"{chosen(made, level, answer, setting, 'validation'):g}"
        best = expected(made, line, "accuracy", "test").written("accuracy")[0]
        marked = [f"{chosen(made, level, answer, setting, 'test'):g} *", f"{best} *"]
    return [[f"{100 * level:g}"], [method], [answer], [own], *numbers, [marked[0]], [marked[1]]]


HEAD = [
    "noise %",
    "method",
    "answer",
    "chosen",
    "accuracy %",
    "NLL",
    "Brier score",
    "ECE %",
    "on test *",
    "accuracy % *",
]


def test_noise_markdown(made: tuple[NoiseStudy, Path]) -> None:
    head, _, *rows = cells_of((made[1] / "to" / "noise.md").read_text())
    assert head == HEAD
    for row, line in zip(rows, ALL_LINES, strict=True):
        assert row == ["<br>".join(each) for each in cells(made, line)]


def test_noise_figure(made: tuple[NoiseStudy, Path]) -> None:
    drawing = made[0].draw()
    own = [("line", "midpoint"), ("standard", "network"), ("standard", "ensemble of 2 runs"), ("dropout", "network")]
    own.append(("label smoothing", "network"))
    names = ["line", "standard", "standard: ensemble of 2 runs", "dropout", "label smoothing"]
    (legend,) = drawing.legends
    assert [text.get_text() for text in legend.texts] == names
    for axes, metric in zip(drawing.axes, ("accuracy", "ece"), strict=True):
        assert axes.get_ylabel() == {"accuracy": "accuracy (%)", "ece": "ECE (%)"}[metric]
        bands = iter(axes.collections)
        for name, handle, curve in zip(own, legend.legend_handles, axes.lines, strict=True):
            lines = [line for line in ALL_LINES if line[1:3] == name]
            found = [expected(made, line, metric) for line in lines]
            assert list(curve.get_xdata()) == [0, 40]
            assert list(curve.get_ydata()) == pytest.approx([100 * one.mean for one in found])
            assert curve.get_color() == handle.get_color()
            if found[0].std is not None:
                edge = next(bands).get_paths()[0].vertices[:, 1]
                assert edge.max() == pytest.approx(max(100 * (one.mean + (one.std or 0)) for one in found))
                assert edge.min() == pytest.approx(min(100 * (one.mean - (one.std or 0)) for one in found))
        greys = [curve.get_color() for curve in axes.lines[1:3]]
        assert greys == ["#000000", "#6e6e6e"]


def test_early_stopping_shows_both_epochs_and_marks_that_of_the_test_set(made: tuple[NoiseStudy, Path]) -> None:
    study = made[0]
    epochs = [{"validation": (3, 0.61), "test": (7, 0.66)}, {"validation": (5, 0.58), "test": (9, 0.69)}]
    stopping = [{k: {"epoch": v[0], "test_accuracy": v[1]} for k, v in each.items()} for each in epochs]
    line = study.lines[2]
    entry = replace(line.chosen, stopping=stopping, frame=line.chosen.frame.iloc[:2])
    row = study.cells(replace(line, chosen=entry))
    spread = f"{100 * np.mean([0.66, 0.69]):.2f} ± {100 * np.std([0.66, 0.69], ddof=1):.2f}"
    assert (row[3], row[-2:]) == ("3, 5", ["7, 9 *", f"{spread} *"])


# Integral


IDENTITIES = [
    Identity("run-a", 3, 0.2, 0.1, 900, 20, 0.81, 3e-6, 0.72, 0.035, 0.0461),
    Identity("run-b", 4, 0.4, 0.2, 800, 10, 0.61, 4e-5, 0.52, 0.055, 0.0561),
]


def test_integral_tables(made: tuple[NoiseStudy, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)
    study = IntegralStudy(made[0], IDENTITIES).write(tmp_path)
    stored = json.loads((tmp_path / "integral.json").read_bytes())
    assert stored["identities"] == [{**asdict(one), "holds": one is IDENTITIES[0]} for one in IDENTITIES]
    assert stored["study"] == json.loads((made[1] / "to" / "noise.json").read_bytes())
    rows = list(csv.DictReader((tmp_path / "identity.csv").read_text().splitlines()))
    assert rows == [{name: str(value) for name, value in asdict(one).items()} for one in IDENTITIES]
    assert (tmp_path / "integral.csv").read_text() == (made[1] / "to" / "noise.csv").read_text()
    checked = [
        ["20", "3", "0.1", "3.0e-06", "81.00", "72.00", "3.50", "0.0461"],
        ["40", "4", "0.2", "4.0e-05 !", "61.00", "52.00", "5.50", "0.0561"],
    ]
    names = ["noise %", "seed", "ε", "rounding", "accuracy % of g(1)", "of the mean of f", "disagree %", "TV"]
    head = [*HEAD[:3], *HEAD[4:8]]
    lines = [[each for at, each in enumerate(cells(made, line)) if at in (0, 1, 2, 4, 5, 6, 7)] for line in ALL_LINES]
    found = cells_of((tmp_path / "integral.md").read_text())
    assert found[0] == head
    assert found[2 : 2 + len(lines)] == [["<br>".join(each) for each in line] for line in lines]
    assert [found[2 + len(lines)], *found[4 + len(lines) :]] == [names, *checked]
    assert any("in 1 of 2 runs" in note for note in study.notes())
