"""Experiments: methods compared on equal terms, and the studies of the paper."""

from subspaces.experiments.compare import compare

__all__ = ["compare"]
