"""Tables on terminals of any width: words fold, numbers stay whole, and no column is left out."""

import pytest

from subspaces.cli import printing
from subspaces.experiments.studies.tables import Table

ROWS = [
    ["standard", "network", "90.20 ± 0.36", "0.8060 ± 0.0008", "20\n× 1"],
    ["line, layerwise", "ensemble of 0.1 and 0.9", "82.83 ± 1.78\n−7.37 [−20.14, +5.40]", "1.3476 ± 0.0180", "20\n× 1"],
]
COLUMNS = ("method", "answer", "accuracy %", "NLL", "training")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_number_is_whole(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    printing.show_table(Table("a table", COLUMNS, ROWS, left=2))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    for text in (cell for row in ROWS for cell in row[2:]):
        for number in text.replace("[", "").replace("]", "").replace(",", "").split():
            assert any(number == word.strip("[],") for word in words), number
    assert {"standard", "network", "layerwise", "ensemble"} <= set(words)
    assert (", ," in " ".join(lines), ",," in "".join(words)) == (False, False)


def test_a_pipe_has_every_row_on_its_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    printing.show_table(Table("a table", COLUMNS, ROWS, left=2))
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "layerwise" in line)
    assert line.split()[:9] == ["line,", "layerwise", "ensemble", "of", "0.1", "and", "0.9", "82.83", "±"]
