"""Tables as wide as the place that they are printed to."""

import os
from pathlib import Path

import pytest
from processes import Pause, Worker, types

from subspaces.cli import printing
from subspaces.experiments.data import SOURCES


def lines(command: str, folder: Path, width: int | None) -> list[str]:
    """What a command prints into a pipe, where COLUMNS is this or not set."""
    printed = Worker(prints, command.split(), folder, width).end()
    return [line.rstrip() for line in printed.splitlines()]


def prints(pause: Pause, argv: list[str], folder: Path, width: int | None) -> None:
    os.environ.pop("COLUMNS", None)
    types(pause, argv, folder, {} if width is None else {"COLUMNS": str(width)}, [])


def test_a_pipe_gets_every_cell_in_full_on_one_line_and_columns_are_respected(tmp_path: Path) -> None:
    text = lines("data list", tmp_path, None)
    for source in SOURCES.values():
        (row,) = (line for line in text if line.split()[:1] == [source.name])
        assert all(cell in row for cell in (source.description, source.size, source.licence))
    narrow = lines("data list", tmp_path, 60)
    assert max(map(len, narrow)) <= 60
    assert len(narrow) > len(text)


def test_a_long_cell_is_neither_folded_nor_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    words = " ".join(f"word{number}" for number in range(200))
    table = printing.table("a", "b")
    table.add_row(words, "x" * 500)
    printing.show(table)
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines() if "word0" in line] == [[*words.split(), "x" * 500]]
    monkeypatch.setenv("COLUMNS", "80")
    printing.show(table)
    narrow = capsys.readouterr().out
    assert max(map(len, narrow.splitlines())) <= 80
