"""Data sets: reading their publishers' files, fetching them, and batches on the device."""

from subspaces.experiments.data.dataset import DataError, Dataset, Files, Images, Split
from subspaces.experiments.data.fetching import absent, check, describe, get
from subspaces.experiments.data.loading import NAMES, Size, fingerprint_of, load, size_of, with_label_noise
from subspaces.experiments.data.own_images import DataWarning
from subspaces.experiments.data.resident import Abreast, ResidentLoader
from subspaces.experiments.data.shares import Share
from subspaces.experiments.data.sources import SOURCES, Published, Source
from subspaces.experiments.data.streaming import StreamingLoader

__all__ = [
    "NAMES",
    "SOURCES",
    "Abreast",
    "DataError",
    "DataWarning",
    "Dataset",
    "Files",
    "Images",
    "Published",
    "ResidentLoader",
    "Share",
    "Size",
    "Source",
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
