"""A table as text: CSV and Markdown."""

import csv
import io
from collections.abc import Sequence
from typing import Any


def rows_as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows with the same columns as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def markdown(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[str], left: int) -> str:
    """Return a table whose first columns are flush left, with a title and notes."""
    rule = ["---"] * left + ["---:"] * (len(columns) - left)
    lines = [f"# {title}", "", _line(columns), _line(rule), *map(_line, rows)]
    return "\n".join([*lines, "", *(f"- {note}" for note in below), ""])


def _line(texts: Sequence[str]) -> str:
    cells = (text.replace("|", r"\|").replace("\n", "<br>") for text in texts)
    return f"| {' | '.join(cells)} |"
