"""Experiments: methods compared on equal terms, and the studies of the paper."""

from subspaces.experiments.compare import compare
from subspaces.experiments.instability import study_instability
from subspaces.experiments.integral import study_integral
from subspaces.experiments.noise import study_noise

__all__ = ["compare", "study_instability", "study_integral", "study_noise"]
