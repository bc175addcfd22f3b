"""Corrupted images: ImageNet-C's corruptions as operations on batches."""

from subspaces.evaluation.corruptions.catalogue import CORRUPTIONS, GROUPS, SEVERITIES, Corruption, corrupt

__all__ = ["CORRUPTIONS", "GROUPS", "SEVERITIES", "Corruption", "corrupt"]
