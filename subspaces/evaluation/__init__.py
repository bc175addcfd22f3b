"""From finished runs to numbers: `evaluation.json` in each run folder."""

from subspaces.evaluation.api import evaluate
from subspaces.evaluation.examples import Examples
from subspaces.evaluation.integrity import check
from subspaces.evaluation.metrics import accuracy, expected_calibration_error
from subspaces.evaluation.record import Check, Choice, Plane, Record, Row

__all__ = [
    "Check",
    "Choice",
    "Examples",
    "Plane",
    "Record",
    "Row",
    "accuracy",
    "check",
    "evaluate",
    "expected_calibration_error",
]
