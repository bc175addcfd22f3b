"""The table of the instability analysis, as JSON, CSV and Markdown, and its figure."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subspaces.evaluation.statistics import spread
from subspaces.studies import forms, tables
from subspaces.studies.entries import METRICS
from subspaces.studies.instability import Cell, InstabilityStudy
from subspaces.studies.mixing import KINDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = 1
WORDS = {
    "branch": "each branch",
    "average": "weight average",
    "ensemble": "ensemble of outputs",
    "global": "mixture, global",
    "layerwise": "mixture, layerwise",
    "per-weight": "mixture, per weight",
}
COLUMNS = ("models", "shared epochs", *(f"{WORDS[kind]} %" for kind in KINDS))


def write_all(study: InstabilityStudy, folder: Path) -> InstabilityStudy:
    """Write the table in every form and the figure, and return what was made and what was not."""
    path, csvs = folder / "instability", {"instability": as_csv(study)}
    made, left_out = forms.write(path, summary(study), csvs, as_markdown(study), lambda: _figure(study))
    return dataclasses.replace(study, files=made, left_out=left_out)


def _figure(study: InstabilityStudy) -> "Figure":
    from subspaces.studies import instability_figure

    return instability_figure.panels(study)


def summary(study: InstabilityStudy) -> dict[str, Any]:
    """Return everything, for a JSON file; the same runs give the same."""
    plan = study.plan
    return {
        "schema": SCHEMA,
        "recipe": {name: value for name, value in plan.recipe.to_dict().items() if name != "seed"},
        "seeds": plan.seeds,
        "shared": plan.shared,
        "models": plan.models,
        "draws": plan.draws,
        "split": tables.SPLIT,
        "images": study.images,
        "notes": notes(study),
        "environments": tables.environments(study.runs),
        "cells": [_cell(cell) for cell in study.cells],
        "runs": [tables.started(run) for run in study.runs],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    found = {metric: dataclasses.asdict(spread(cell.values(metric))) for metric in METRICS}
    return {"models": cell.models, "shared": cell.shared, "kind": cell.kind, "metrics": found}


def as_csv(study: InstabilityStudy) -> str:
    """Return a row for each cell, with numbers in full and shares as fractions."""
    rows = []
    for cell in study.cells:
        found: dict[str, Any] = {"models": cell.models, "shared": cell.shared, "kind": cell.kind}
        found["n"] = len(cell.scores)
        for metric in METRICS:
            values = spread(cell.values(metric))
            found |= {f"{metric}_mean": values.mean, f"{metric}_std": values.std}
        rows.append(found)
    return forms.rows_as_csv(rows)


def lines(study: InstabilityStudy) -> list[list[str]]:
    """Return the cells of the table: accuracies."""
    found = []
    for models in study.plan.models:
        for shared in study.plan.shared:
            values = [spread(study.cell(models, shared, kind).values()) for kind in KINDS]
            found.append([str(models), str(shared), *(tables.shown(each, "accuracy") for each in values)])
    return found


def heading(study: InstabilityStudy) -> str:
    """Return what all networks share."""
    recipe = study.plan.recipe
    return forms.heading([recipe], study.images, f"{recipe.epochs} epochs", recipe.label_noise)


def notes(study: InstabilityStudy) -> list[str]:
    """Return what a reader has to know to judge the numbers."""
    plan = study.plan
    named = f"{'seeds' if len(plan.seeds) > 1 else 'seed'} {', '.join(map(str, plan.seeds))}"
    return [
        f"Networks that share their first epochs, and then see the images in another order; {named}. Accuracies: "
        "mean ± standard deviation (n − 1) over branches, draws and seeds.",
        f"Mixtures: {plan.draws} draws of coefficients that are uniform on the simplex, one for the network, for each "
        "layer, or for each weight.",
        "Batch-norm statistics are made anew for every network from all training images.",
    ]


def as_markdown(study: InstabilityStudy) -> str:
    """Return the table with its notes."""
    return forms.markdown(heading(study), COLUMNS, lines(study), notes(study), left=0)
