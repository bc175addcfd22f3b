"""Names that are now in `rows`, `evaluation` and `legacy`."""

from subspaces.evaluation.evaluation import FILE
from subspaces.evaluation.evaluation import Evaluation as Record
from subspaces.evaluation.legacy import Outliers, Shift
from subspaces.evaluation.rows import (
    About,
    Alpha,
    Answered,
    Check,
    Choice,
    Corner,
    Description,
    Drawn,
    Examples,
    Grid,
    Plane,
    Reliability,
    RiskCoverage,
    Row,
    Training,
)

__all__ = [
    "FILE",
    "About",
    "Alpha",
    "Answered",
    "Check",
    "Choice",
    "Corner",
    "Description",
    "Drawn",
    "Examples",
    "Grid",
    "Outliers",
    "Plane",
    "Record",
    "Reliability",
    "RiskCoverage",
    "Row",
    "Shift",
    "Training",
]
