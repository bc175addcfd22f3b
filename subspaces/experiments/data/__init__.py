"""Data sets: reading their publishers' files, fetching them, and batches on the device."""

from subspaces.errors import DataError
from subspaces.experiments.data.download import absent, check, describe, get
from subspaces.experiments.data.folders import DataWarning
from subspaces.experiments.data.loading import NAMES, SOURCES, fingerprint_of, load, with_label_noise
from subspaces.experiments.data.resident import ResidentLoader, Share, StackedLoader
from subspaces.experiments.data.streaming import StreamingLoader
from subspaces.images.splits import Dataset, Files, Images, Split

__all__ = [
    "NAMES",
    "SOURCES",
    "DataError",
    "DataWarning",
    "Dataset",
    "Files",
    "Images",
    "ResidentLoader",
    "Share",
    "Split",
    "StackedLoader",
    "StreamingLoader",
    "absent",
    "check",
    "describe",
    "fingerprint_of",
    "get",
    "load",
    "with_label_noise",
]
