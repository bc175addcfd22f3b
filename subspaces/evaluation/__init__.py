"""From predictions to numbers."""

from subspaces.evaluation.metrics import accuracy, expected_calibration_error

__all__ = ["accuracy", "expected_calibration_error"]
