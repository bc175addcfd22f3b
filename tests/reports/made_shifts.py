"""Shifted data and outliers for made-up records, whose numbers follow a formula that tests can work out again.

On shifted data an accuracy a becomes a (1 + change), and any other metric a (1 - change), with `change` below.
"""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import made_runs

from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.measuring import OUTLIER_METRICS
from subspaces.evaluation.rows import Row
from subspaces.experiments.training import RECIPES

GROUPS = {"spatter": "extra", "contrast": "digital", "gaussian_noise": "noise", "snow": "weather"}
SHOWN = ("gaussian_noise", "snow", "contrast", "spatter")  # in the order of their groups
TOLD = SHOWN[:3]  # of which a mean is told
PEAKS = {"gaussian_noise": 0.25, "snow": 0.8, "contrast": 0.5, "spatter": 0.0}  # where a line is best
SEVERITIES = (1, 3)
METRICS = ("accuracy", "nll", "brier", "ece")
SCORES = OUTLIER_METRICS[:2]
SETS = {"pure noise": 40, "other digits": 70}


def evaluated(method: str, seed: int) -> Evaluation:
    """Return what was measured of a run, which no folder holds."""
    recipe = dataclasses.replace(RECIPES[f"digits-{method}"], seed=seed)
    return made_runs.evaluated(recipe, f"{method} {seed}", {}, {"test": 120}, planes=False)


def change(name: str, severity: float, row: Row, offset: float) -> float:
    """Return the planted relative change of an accuracy: at most at the peak of a line, and less for an ensemble."""
    at = row.alphas[0] if row.kind == "point" and not isinstance(row.alphas[0], list) else 0.5
    away = 0.0 if row.coefficients == [[1.0]] else abs(at - PEAKS[name])  # one network has no place
    return -0.1 - 0.05 * SHOWN.index(name) - 0.03 * severity - 0.2 * away + offset + 0.02 * (row.kind == "ensemble")


def offset(record: Evaluation) -> float:
    """Return how much less a run changes than others, by its method and its seed."""
    recipe = record.recipe or {"method": record.name, "seed": 0}
    return 0.01 * len(recipe["method"]) + 0.004 * recipe["seed"]


def scores(row: Row, name: str) -> dict[str, float]:
    """Return planted scores against outliers."""
    share = row.metrics["accuracy"] * (0.9 if name == "other digits" else 1.0)
    return {"auroc_probability": share, "fpr95_probability": 1 - share / 2}


def add(record: Evaluation) -> Evaluation:
    """Measure a record, as it were, on shifted data and against outliers."""
    rows = [row for row in record.rows if row.data == "test"]
    answers = [row for row in rows if any(each.is_of(row) for each in record.answers)]
    for name, group in GROUPS.items():
        for severity in SEVERITIES:
            about: dict[str, Any] = {"data": name, "severity": severity, "group": group, "source": "made"}
            record.rows += [dataclasses.replace(_shifted(record, row, name, severity), **about) for row in rows]
    for name, count in SETS.items():
        about = {"data": name, "count": count, "group": "outliers", "source": "given"}
        record.rows += [dataclasses.replace(_plain(row, scores(row, name)), **about) for row in answers]
    return record


def shifted(record: Evaluation) -> list[Row]:
    """Return the rows on shifted data."""
    return [row for row in record.rows if row.group not in ("", "outliers")]


def with_shifted(record: Evaluation, rows: Iterable[Row]) -> Evaluation:
    """Return a record with other rows on shifted data."""
    others = [row for row in record.rows if row.group in ("", "outliers")]
    return dataclasses.replace(record, rows=[*others, *rows])


def add_to(folder: Path) -> Path:
    """Do so with the record of a run folder."""
    add(Evaluation.load(folder)).save(folder)
    return folder


def _shifted(record: Evaluation, row: Row, name: str, severity: int) -> Row:
    rise = change(name, severity, row, offset(record))
    return _plain(row, {m: row.metrics[m] * (1 + (rise if m == "accuracy" else -rise)) for m in METRICS})


def _plain(row: Row, metrics: dict[str, float]) -> Row:
    return dataclasses.replace(row, metrics=metrics, reliability=None, diversity=None)
