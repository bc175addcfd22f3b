"""The forms of a table: all its files, what could not be drawn, titles, and where its runs were trained."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from study_cases import LINE, STANDARD

from subspaces.evaluation.comparing import heading
from subspaces.experiments.evaluating.training import training_of
from subspaces.experiments.studies import tables
from subspaces.experiments.studies.tables import Made, Result, Table
from subspaces.experiments.training import Run, run_files

FILES = ("name.json", "name.csv", "more.csv", "name.md")


def write(folder: Path, figure: Callable[[], Figure] | None) -> Made:
    class Found(Result):
        def tables(self) -> list[Table]:
            return [Table("A", ["b", "c"], [["x|", "1\n2"]], 1)]

        def notes(self) -> list[str]:
            return ["d"]

        def summary(self) -> dict[str, Any]:
            return {"a": 1}

        def rows(self) -> dict[str, list[dict[str, Any]]]:
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


@pytest.mark.parametrize(
    ("noise", "told", "expected"),
    [
        (0.0, (), "digits · mlp · 1,597 test images"),
        (0.0, ("Integral, ε = 0.1",), "digits · mlp · Integral, ε = 0.1 · 1,597 test images"),
        (0.25, (), "digits, 25 % label noise · mlp · 1,597 test images"),
        (0.4, ("4 epochs",), "digits, 40 % label noise · mlp · 4 epochs · 1,597 test images"),
    ],
)
def test_a_title_says_what_all_share(noise: float, told: tuple[str, ...], expected: str) -> None:
    recipes = [replace(one, label_noise=noise) for one in (STANDARD, LINE)]
    assert heading([*map(training_of, recipes)], *told, "1,597 test images") == expected


# Where runs were trained


def start(time: str, **changes: Any) -> dict[str, Any]:
    execution = {"device": "cpu", "precision": "float32", "compile": False}
    versions = {"commit": "abc", "hardware": "a CPU", "torch": "2.9", "python": "3.11", "subspaces": "0.1"}
    return {"time": time, **versions, "threads": 3, "execution": execution, **changes}


def run_in(folder: Path, *starts: dict[str, Any]) -> Run:
    folder.mkdir()
    run_files.write_json(folder / "environment.json", {"starts": starts}, STANDARD.key)
    return Run(folder, STANDARD)


def test_every_environment_is_there_once_whatever_the_order_of_the_runs(tmp_path: Path) -> None:
    on_gpu = {"device": "cuda", "precision": "bfloat16"}
    runs = [
        run_in(tmp_path / "a", start("1", hardware="a GPU", execution=on_gpu), start("2")),  # continued elsewhere
        run_in(tmp_path / "b", start("3", threads=9)),
        run_in(tmp_path / "c", start("4", commit=None)),
    ]
    known = {"commit": "abc", "hardware": "a CPU", "torch": "2.9", "python": "3.11", "subspaces": "0.1"}
    cpu = {"device": "cpu", "precision": "float32"}
    found = tables.environments(runs)
    assert found == [{**known, **cpu}, {**known, "hardware": "a GPU", **on_gpu}, {**known, "commit": None, **cpu}]
    assert tables.environments(runs[::-1]) == found
    assert tables.environments([*runs, *runs]) == found
    assert tables.environments([]) == []
