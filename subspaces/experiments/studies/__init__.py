"""Methods compared on equal terms, and the studies of the paper.

Example:
    >>> study = ss.studies.study_grid(["digits-standard", "digits-line"], "epochs", [20, 60], seeds=[0, 1])
    >>> print(study.markdown())
"""

from subspaces.experiments.studies.compare import compare
from subspaces.experiments.studies.grid import study_grid, study_integral, study_noise
from subspaces.experiments.studies.instability import study_instability

__all__ = ["compare", "study_grid", "study_instability", "study_integral", "study_noise"]
