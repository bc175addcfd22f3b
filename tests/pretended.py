"""In the place of training and measuring: run folders with numbers that were drawn.

Every number of such a run is drawn on its own, so that no two of them are equal and a wrong one shows wherever it is.
"""

import dataclasses
import importlib
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from subspaces.evaluation.evaluation import Evaluation
from subspaces.experiments.evaluating.evaluate import Measured
from subspaces.experiments.training import Execution, Recipe, Run

sys.path.insert(0, str(Path(__file__).parent / "reports"))
import made_runs

SPLITS = {"test": 30, "validation": 20}
RANGES = {"accuracy": (0.5, 0.9), "nll": (0.4, 1.6), "brier": (0.2, 0.7), "ece": (0.02, 0.2)}
RANGES |= {"adaptive_ece": (0.02, 0.2), "aurc": (0.05, 0.3)}
FAR = {repr(step / 20) for step in range(21) if step not in (0, 2, 3, 10, 17, 18, 20)}  # what no table asks for
Scores = dict[str, dict[str, float]]


def drawn(*words: object) -> dict[str, float]:
    """A number for each metric, fixed by the words."""
    random = np.random.default_rng(zlib.crc32(repr(words).encode()))
    return {name: float(random.uniform(*limits)) for name, limits in RANGES.items()}


def scores(*words: object) -> Scores:
    return {split: drawn(*words, split) for split in SPLITS}


def made(out: Path, recipe: Recipe) -> Run:
    """A run of a recipe whose measured numbers are drawn."""
    folder = Run.under(out, recipe).folder
    if not folder.exists():
        fields = {name: value for name, value in recipe.to_dict().items() if name != "method"}
        splits = SPLITS if recipe.validation else {"test": SPLITS["test"]}
        made_runs.run(out, recipe.method, splits=splits, planes=False, **fields)
        record = Evaluation.load(folder)
        words = {name: value for name, value in recipe.to_dict().items() if name != "name"}
        few = [row for row in record.rows if not set(map(repr, row.alphas)) & FAR and row.role not in ("grid", "edge")]
        record.rows = [
            dataclasses.replace(row, metrics=drawn(words, row.data, repr(row.alphas), row.average)) for row in few
        ]
        record.environment["family"] = folder.name  # which tells it from others
        record.save(folder)
    return Run.open(folder)


class Pretended:
    """Stand-ins for what trains and measures."""

    def patch(self, patch: pytest.MonkeyPatch, module: str) -> None:
        """Put the stand-ins in the place of the names that a module has imported."""
        place = importlib.import_module(module)
        patch.setattr(
            "subspaces.experiments.training.api._check_names", lambda *_: None
        )  # a network without dropout will do
        patch.setattr("subspaces.experiments.evaluating.evaluate.evaluate_together", self.evaluate_together)
        for name in ("train_recipes", "evaluate"):
            if hasattr(place, name):
                patch.setattr(place, name, getattr(self, name))

    def train_recipes(self, recipes: Sequence[Recipe], execution: Execution, **settings: Any) -> list[Run]:
        return [made(Path(settings["out"]), one) for one in recipes]

    def evaluate(self, runs: Sequence[Run], **settings: Any) -> list[Evaluation]:
        return [Evaluation.load(run.folder) for run in runs]

    def evaluate_together(self, groups: Any, **settings: Any) -> list[Measured]:
        found = []
        for group in groups:
            names, families = [one.folder.name for one in group], [Evaluation.load(one.folder).family for one in group]
            key = {"runs": names, "families": families, "batches": None}
            found.append(Measured(key, {}, SPLITS, scores("together", *names)))
        return found
