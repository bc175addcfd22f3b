"""Everything that was measured of one family as one pandas DataFrame: a row per answer or point, data and severity."""

from typing import TYPE_CHECKING, Any

from subspaces.evaluation.record import Record, Row

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


def to_frame(record: Record) -> "pd.DataFrame":
    """Return one row per (answer or point, data, severity), and a column per metric.

    ========== =====================================================================================================
    answer     the name of the answer, such as "midpoint" or "pair"; "" of a point that is no answer
    kind       "point", or "ensemble" of several
    role       "along", "midpoint", "vertex", "edge", "grid", "random", …
    alpha      of a line or curve the point, or the smaller one of a pair; else NaN
    alphas     all points, each a number or a tuple of barycentric coordinates
    average    how the members of an ensemble are averaged: "probabilities", "logits", …; "" of a point
    networks   how many networks answer together
    data       "test", "validation", the name of a corruption or loader, or of the outliers
    severity   of a corruption, from 1; else 0
    group      "" of a split; of shifted data "noise", "blur", "weather", "digital", "extra" or "given"; "outliers"
    source     of shifted data and outliers: "made", "given", "data", or the name of a folder
    count      examples
    ========== =====================================================================================================

    Metrics after temperature scaling are `scaled_NAME` and `temperature`; how differently the members of an ensemble
    predict is in columns such as `tv` and `disagreement`. Reliability and risk-coverage curves are in `record.rows`.
    """
    import pandas as pd

    entries = [_entry(record, row, data=row.split) for row in record.rows]
    for shift in record.shifts:
        where = (shift.name, shift.severity, shift.group, shift.source)
        entries += [_entry(record, row, *where) for row in shift.rows]
    for each in record.outliers:
        entries += [_entry(record, row, each.name, 0, OUTLIERS, each.source) for row in each.rows]
    frame = pd.DataFrame(entries, columns=None if entries else list(ABOUT))
    return frame[[*ABOUT, *(name for name in frame.columns if name not in ABOUT)]]


def _entry(record: Record, row: Row, data: str, severity: int = 0, group: str = "", source: str = "") -> dict[str, Any]:
    numbers = [alpha for alpha in row.alphas if not isinstance(alpha, list)]
    interval = record.shape["kind"] == "interval" and row.role in ("along", "midpoint")
    scaled = {name if name == "temperature" else f"scaled_{name}": value for name, value in (row.scaled or {}).items()}
    return {
        "answer": next((each.name for each in record.answers if each.is_of(row)), ""),
        "kind": row.kind,
        "role": row.role,
        "alpha": min(numbers) if interval and numbers else float("nan"),
        "alphas": tuple(tuple(alpha) if isinstance(alpha, list) else alpha for alpha in row.alphas),
        "average": row.average or "",
        "networks": row.networks,
        "data": data,
        "severity": severity,
        "group": group,
        "source": source,
        "count": row.count,
        **row.metrics,
        **scaled,
        **(row.diversity or {}),
    }
