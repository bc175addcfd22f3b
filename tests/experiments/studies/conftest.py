"""One small comparison that the tests share."""

from dataclasses import replace
from pathlib import Path

import pytest
from study_cases import LINE, SIMPLEX, SMALL, STANDARD

import subspaces as ss
from subspaces.experiments.studies.compare import Comparison


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compared")


@pytest.fixture(scope="session")
def comparison(folder: Path) -> Comparison:
    """Standard training, one with dropout, a line and a simplex, with four seeds each."""
    recipes = [STANDARD, replace(STANDARD, name="digits-dropout", dropout=0.3), LINE, SIMPLEX]
    return ss.compare(
        recipes, seeds=range(4), ensembles=[2, 3], dropout_passes=4, runs=folder / "runs", out=folder / "to", **SMALL
    )
