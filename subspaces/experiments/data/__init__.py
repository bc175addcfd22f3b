"""Data sets: reading their publishers' files, fetching them, and batches on the device."""

from subspaces.errors import DataError
from subspaces.experiments.data.download import absent, check, describe, get
from subspaces.experiments.data.loading import NAMES, SOURCES, Size, fingerprint_of, load, size_of, with_label_noise
from subspaces.experiments.data.own_images import DataWarning
from subspaces.experiments.data.resident import Abreast, ResidentLoader, Share
from subspaces.experiments.data.streaming import StreamingLoader
from subspaces.images.splits import Dataset, Files, Images, Split

__all__ = [
    "NAMES",
    "SOURCES",
    "Abreast",
    "DataError",
    "DataWarning",
    "Dataset",
    "Files",
    "Images",
    "ResidentLoader",
    "Share",
    "Size",
    "Split",
    "StreamingLoader",
    "absent",
    "check",
    "describe",
    "fingerprint_of",
    "get",
    "load",
    "size_of",
    "with_label_noise",
]
