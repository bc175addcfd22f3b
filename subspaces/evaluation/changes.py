"""Names that are now in `legacy`."""

from subspaces.evaluation.legacy import (
    Change,
    answered_by_all,
    averaged,
    compared,
    mean_changes,
    relative_change,
)
from subspaces.evaluation.shifted_data import EXTRA

__all__ = ["EXTRA", "Change", "answered_by_all", "averaged", "compared", "mean_changes", "relative_change"]
