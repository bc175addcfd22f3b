"""Experiments: methods compared on equal terms, and the studies of the paper."""

from subspaces.studies.compare import compare
from subspaces.studies.instability import study_instability
from subspaces.studies.integral import study_integral
from subspaces.studies.noise import study_noise
from subspaces.studies.reproduce import reproduce

__all__ = ["compare", "reproduce", "study_instability", "study_integral", "study_noise"]
