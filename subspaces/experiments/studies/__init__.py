"""Experiments: methods compared on equal terms, and the studies of the paper."""

from subspaces.experiments.studies.compare import compare
from subspaces.experiments.studies.instability import study_instability
from subspaces.experiments.studies.integral import study_integral
from subspaces.experiments.studies.noise import study_noise
from subspaces.experiments.studies.reproduce import reproduce

__all__ = ["compare", "reproduce", "study_instability", "study_integral", "study_noise"]
