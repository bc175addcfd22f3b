"""Everything that was measured of one family as one pandas DataFrame: a row per answer or point, data and severity."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from subspaces.evaluation.rows import Answered, Row

if TYPE_CHECKING:
    import pandas as pd

ABOUT = (
    "answer",
    "kind",
    "role",
    "alpha",
    "alphas",
    "average",
    "networks",
    "data",
    "severity",
    "group",
    "source",
    "count",
)
"""The columns that say what was measured; all others are metrics."""
OUTLIERS = "outliers"


def frame_of(rows: Iterable[Row], answers: Sequence[Answered], interval: bool) -> "pd.DataFrame":
    """Return one row per (answer or point, data, severity), and a column per metric; see `Evaluation.frame`."""
    import pandas as pd

    entries = [_entry(row, answers, interval) for row in rows]
    frame = pd.DataFrame(entries, columns=None if entries else list(ABOUT))
    return frame[[*ABOUT, *(name for name in frame.columns if name not in ABOUT)]]


def _entry(row: Row, answers: Sequence[Answered], interval: bool) -> dict[str, Any]:
    numbers = [alpha for alpha in row.alphas if not isinstance(alpha, list)]
    alone = interval and row.role in ("along", "midpoint")
    scaled = {name if name == "temperature" else f"scaled_{name}": value for name, value in (row.scaled or {}).items()}
    return {
        "answer": next((each.name for each in answers if each.is_of(row)), ""),
        "kind": row.kind,
        "role": row.role,
        "alpha": min(numbers) if alone and numbers else float("nan"),
        "alphas": tuple(tuple(alpha) if isinstance(alpha, list) else alpha for alpha in row.alphas),
        "average": row.average or "",
        **{name: getattr(row, name) for name in ("networks", "data", "severity", "group", "source", "count")},
        **row.metrics,
        **scaled,
        **(row.diversity or {}),
    }
