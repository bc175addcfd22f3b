"""Corrupted images: ImageNet-C's corruptions as operations on batches, and the published files of them."""

from subspaces.evaluation.corruptions.catalogue import CORRUPTIONS, GROUPS, SEVERITIES, Corruption, corrupt
from subspaces.evaluation.corruptions.layouts import names_in, published

__all__ = ["CORRUPTIONS", "GROUPS", "SEVERITIES", "Corruption", "corrupt", "names_in", "published"]
