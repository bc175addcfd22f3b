"""Every number of a comparison, in every form, against the records of its runs; and the forms of any table."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pretended import Pretended, scores
from study_cases import (
    DROPOUT,
    LINE,
    METRICS,
    PLAIN,
    SIMPLEX,
    STANDARD,
    Expected,
    cells_of,
    check_csv,
    pretend,
    row_of,
    without_pictures,
)

from subspaces.experiments.studies import compare, tables
from subspaces.experiments.studies.compare import Comparison
from subspaces.experiments.studies.setting import find_reference
from subspaces.experiments.studies.tables import Made, Result, Table
from subspaces.experiments.training import Recipe, Run, run_files

SEEDS = [2, 3, 5, 8]
RECIPES = [replace(LINE, validation=20, batch=100), DROPOUT, PLAIN, replace(SIMPLEX, validation=20)]
ANSWERS = [
    (PLAIN, "network", 1),
    (PLAIN, "ensemble of 2 runs", 2),
    (PLAIN, "ensemble of 3 runs", 3),
    (DROPOUT, "network", 1),
    (RECIPES[0], "midpoint", 1),
    (RECIPES[0], "ensemble of 0.1 and 0.9", 2),
    (RECIPES[3], "midpoint", 1),
    (RECIPES[3], "ensemble of 3 vertices", 3),
    (RECIPES[3], "ensemble of 6 random points", 6),
]
METHODS = {"digits-dropout": "standard, dropout = 0.3", "digits-line": "line, batch = 100"}
METHODS |= {"digits-standard": "standard", "digits-simplex": "simplex (m = 3)"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Path]:
    folder = tmp_path_factory.mktemp("pretended")
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, Pretended())
        without_pictures(patch)
        settings: dict[str, Any] = {"seeds": SEEDS, "ensembles": [3, 2], "show": "quiet"}
        return compare(RECIPES, runs=folder / "runs", out=folder / "to", **settings), folder


def expected(made: Comparison, recipe: Recipe, answer: str, metric: str) -> Expected:
    """A metric of an entry, from the records and from what the stand-ins have drawn."""
    runs = {name: [run for run in made.runs if run.recipe.name == name] for name in METHODS}
    plain = [row_of(run, "network")[metric] for run in runs["digits-standard"]]
    own = runs[recipe.name]
    if "runs" in answer:
        size = int(answer.split()[2])
        groups = [own[at : at + size] for at in range(0, len(own) - size + 1, size)]
        values = [scores("together", *(run.folder.name for run in group))["test"][metric] for group in groups]
        means = [float(np.mean(plain[at * size : (at + 1) * size])) for at in range(len(groups))]
        return Expected(values, means)
    values = [row_of(run, answer)[metric] for run in own]
    return Expected(values, None if recipe is PLAIN else plain)


def cells(made: Comparison, recipe: Recipe, answer: str, networks: int) -> list[list[str]]:
    numbers = [expected(made, recipe, answer, metric).written(metric) for metric in METRICS]
    runs = int(answer.split()[2]) if "runs" in answer else 1
    steps = runs * recipe.epochs * -(-1200 // recipe.batch)  # one network in each step
    relative = f"× {steps / (PLAIN.epochs * 10):.3g}"
    return [[METHODS[recipe.name]], [answer], *numbers, [f"{steps:,}", relative], [str(networks)]]


def test_json_has_every_number(made: tuple[Comparison, Path]) -> None:
    comparison, folder = made
    stored = json.loads((folder / "to" / "comparison.json").read_bytes())
    assert [(one["recipe"]["name"], one["answer"]) for one in stored["entries"]] == [
        (recipe.name, answer) for recipe, answer, _ in ANSWERS
    ]
    assert stored["reference"] == "standard, network"  # the plain one, though it came later
    assert (stored["images"], stored["training_images"], stored["seeds"]) == (30, 1200, SEEDS)
    assert (stored["split"], stored["confidence"], stored["validation"]) == ("test", 0.95, 20)
    frame = comparison.frame.set_index(["method", "words"])
    for entry, (recipe, answer, networks) in zip(stored["entries"], ANSWERS, strict=True):
        for metric in METRICS:
            one = expected(comparison, recipe, answer, metric)
            assert frame.loc[[(METHODS[recipe.name], answer)], metric].tolist() == one.values
            one.check(entry["metrics"][metric])
            one.check_difference(entry["metrics"][metric]["difference"])
        assert entry["networks_at_test"] == networks
        assert entry["method"] == METHODS[recipe.name]
        count = int(answer.split()[2]) if "runs" in answer else 1
        groups = [SEEDS[at : at + count] for at in range(0, len(SEEDS) - count + 1, count)]
        assert entry["seeds"] == groups
        names = [run.folder.name for run in comparison.runs if run.recipe.name == recipe.name]
        assert entry["runs"] == names[: count * len(groups)]


def test_csv_and_markdown_have_every_number(made: tuple[Comparison, Path]) -> None:
    comparison, folder = made
    with open(folder / "to" / "comparison.csv") as file:
        rows = list(csv.DictReader(file))
    head, _, *written = cells_of((folder / "to" / "comparison.md").read_text())
    assert head == ["method", "answer", "accuracy %", "NLL", "Brier score", "ECE %", "training", "networks"]
    for row, texts, (recipe, answer, networks) in zip(rows, written, ANSWERS, strict=True):
        own = cells(comparison, recipe, answer, networks)
        assert texts == ["<br>".join(lines) for lines in own]
        for metric in METRICS:
            check_csv(row, expected(comparison, recipe, answer, metric).columns(metric))
        assert [row["method"], row["answer"], row["networks_at_test"]] == [own[0][0], answer, str(networks)]
        steps, relative = float(row["training_network_steps"]), float(row["training_relative"])
        assert [f"{steps:,.0f}", f"× {relative:.3g}"] == own[-2]
        assert int(row["n"]) == len(expected(comparison, recipe, answer, "nll").values)


def marks(axes: Axes, place: int) -> tuple[list[Any], Any]:
    """The lines of a panel at a place, and the last of them, which is the mean."""
    found = [line for line in axes.lines[1:] if place in np.round(np.atleast_1d(line.get_ydata()), 6)]
    return found, found[-1]


def test_the_figure_shows_every_difference_in_the_colour_of_its_sign(made: tuple[Comparison, Path]) -> None:
    comparison, _ = made
    drawing = comparison.draw()
    others = [one for one in ANSWERS if one[:2] != (PLAIN, "network")]
    assert [text.get_text() for text in drawing.axes[0].get_yticklabels()] == [
        METHODS[recipe.name] + ("" if answer == "network" else f": {answer.removeprefix('ensemble of ')}")
        for recipe, answer, _ in others
    ]
    seen = set()
    for axes, metric in zip(drawing.axes, ("accuracy", "nll", "ece"), strict=False):
        scale = 100 if metric in ("accuracy", "ece") else 1
        assert axes.get_xlabel().endswith("right is better" if metric == "accuracy" else "left is better")
        low, high = axes.get_xlim()
        for place, (recipe, answer, _) in enumerate(others):
            one = expected(comparison, recipe, answer, metric)
            mean = scale * np.mean(one.differences)
            lines, last = marks(axes, place)
            assert np.atleast_1d(last.get_xdata())[0] == pytest.approx(mean)
            good = (mean > 0) if metric == "accuracy" else (mean < 0)
            seen.add(good)
            assert (last.get_color(), last.get_marker()) == (("#009E73", "o") if good else ("#D55E00", "D"))
            if one.interval[0] is not None:
                ends = [scale * end for end in one.interval]
                assert list(lines[0].get_xdata()) == pytest.approx([max(ends[0], low), min(ends[1], high)])
                arrows = ["<" if ends[0] < low else "|", ">" if ends[1] > high else "|"]
                assert [line.get_marker() for line in lines[1:3]] == arrows
                (each,) = (line for line in axes.lines if np.allclose(line.get_ydata(), place + 0.27))
                assert list(each.get_xdata()) == pytest.approx([scale * value for value in one.differences])
    assert seen == {True, False}
    assert "difference to standard, network, paired by the seed (4 seeds)" in drawing.legends[0].get_title().get_text()


def test_the_reference_is_the_plain_recipe_or_the_one_that_is_named() -> None:
    smooth = replace(PLAIN, name="digits-smooth", label_smoothing=0.1)
    line = RECIPES[0]
    for recipes, name, found in (
        ([DROPOUT, smooth, line, PLAIN], None, PLAIN),
        ([line, smooth, DROPOUT], None, smooth),  # no plain one: the first that is standard
        ([line], None, None),
        ([PLAIN, line], "digits-line", line),
        ([PLAIN, smooth], smooth, smooth),
    ):
        assert find_reference(recipes, name) == found


FILES = ("name.json", "name.csv", "more.csv", "name.md")


def write(folder: Path, figure: Callable[[], Figure] | None) -> Made:
    class Found(Result):
        def tables(self) -> list[Table]:
            return [Table("A", ["b", "c"], [["x|", "1\n2"]], 1)]

        def notes(self) -> list[str]:
            return ["d"]

        def summary(self) -> dict[str, Any]:
            return {"a": 1}

        def rows(self, summary: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
            return {"name": [{"a": 1}], "more": [{"é": None}]}

        def draw(self) -> Figure | None:
            return None if figure is None else figure()

    made = Found(name="name").write(folder)
    return made.files, made.left_out


def test_every_form_is_written_in_order(tmp_path: Path) -> None:
    files, left_out = write(tmp_path, Figure)
    assert [path.name for path in files] == [*FILES, "name.png", "name.pdf"]
    assert left_out == []
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert json.loads(files[0].read_bytes()) == {"a": 1}
    text = "# A\n\n| b | c |\n| --- | ---: |\n| x\\| | 1<br>2 |\n\n- d\n"
    assert [path.read_text() for path in files[1:4]] == ["a\n1\n", 'é\n""\n', text]
    assert all(path.stat().st_size for path in files)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            ModuleNotFoundError("no axes", name="matplotlib.axes"),
            "figures need matplotlib: pip install 'subspaces[figures]'",
        ),
        (ModuleNotFoundError("no other", name="other"), "no other"),
        (ImportError("broken"), "broken"),
    ],
)
def test_what_cannot_be_drawn_is_said_after_the_numbers_are_written(
    error: ImportError, reason: str, tmp_path: Path
) -> None:
    def draw() -> Figure:
        assert all((tmp_path / name).is_file() for name in FILES)
        raise error

    files, left_out = write(tmp_path, draw)
    assert [path.name for path in files] == [*FILES]
    assert left_out == [f"no figure: {reason}"]


def test_every_environment_is_there_once_whatever_the_order_of_the_runs(tmp_path: Path) -> None:
    known = {"commit": "abc", "hardware": "a CPU", "torch": "2.9", "python": "3.11", "subspaces": "0.1"}
    cpu, gpu = ({"device": device, "precision": "float32"} for device in ("cpu", "cuda"))

    def run_in(name: str, *given: dict[str, Any]) -> Run:
        usual = {**known, "time": name, "threads": 3, "execution": {**cpu, "compile": False}}
        told = [{**usual, **each} for each in given]
        (tmp_path / name).mkdir()
        run_files.write_json(tmp_path / name / "environment.json", {"starts": told}, STANDARD.key)
        return Run(tmp_path / name, STANDARD)

    continued = run_in("a", {"hardware": "a GPU", "execution": gpu}, {})
    runs = [continued, run_in("b", {"threads": 9}), run_in("c", {"commit": None})]
    expected = [{**known, **cpu}, {**known, "hardware": "a GPU", **gpu}, {**known, "commit": None, **cpu}]
    assert tables.environments(runs) == tables.environments([*runs[::-1], *runs]) == expected
    assert tables.environments([]) == []
