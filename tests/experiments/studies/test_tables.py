"""The forms of a table: all its files, what could not be drawn, titles, and where its runs were trained."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from study_cases import STANDARD

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
