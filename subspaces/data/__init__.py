"""Data sets: reading their publishers' files, fetching them, and batches on the device."""

from subspaces.data.dataset import DataError, Dataset, Files, Images, Split
from subspaces.data.loading import NAMES, load
from subspaces.data.resident import ResidentLoader

__all__ = ["NAMES", "DataError", "Dataset", "Files", "Images", "ResidentLoader", "Split", "load"]
