"""Images with labels: in memory as bytes, or as files."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from subspaces.errors import ArgumentError, DataError

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")
"""Of the files in a folder for each class."""


@dataclass(frozen=True, eq=False)
class Split:
    """Images uint8 [n, C, H, W], in memory or mapped from a file, and labels int64 [n]."""

    images: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            found = f"{self.images.dtype} {tuple(self.images.shape)}"
            raise ArgumentError(f"Split got images of {found}: expected torch.uint8 [n, channels, height, width]")
        _check_labels(self.labels, len(self.images))

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, index: Tensor) -> "Split":
        """Return the images and labels at `index`, in that order."""
        return Split(self.images[index], self.labels[index])


@dataclass(frozen=True, eq=False)
class Files:
    """Image files too many to hold in memory: paths below `root`, bytes [n], and labels int64 [n]."""

    root: Path
    paths: npt.NDArray[Any]  # one block of memory, which worker processes share
    labels: Tensor

    def __post_init__(self) -> None:
        _check_labels(self.labels, len(self.paths))

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, index: Tensor) -> "Files":
        """Return the paths and labels at `index`, in that order."""
        return Files(self.root, self.paths[index.numpy()], self.labels[index])

    def path(self, index: int) -> Path:
        """Return where image `index` is."""
        return self.root / os.fsdecode(self.paths[index])


Images = Split | Files


def _check_labels(labels: Tensor, count: int) -> None:
    if labels.dtype != torch.int64 or labels.shape != (count,):
        found = f"{labels.dtype} {tuple(labels.shape)}"
        raise ArgumentError(f"labels are {found}: expected torch.int64 ({count},), one for each image")


def check_label_values(labels: npt.NDArray[Any], classes: int, where: object) -> None:
    """Refuse labels outside 0 … classes − 1, naming the first one."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        first = int(wrong[0])
        raise DataError(
            f"{where}: image {first} has the label {labels[first]}, expected 0 to {classes - 1} "
            f"({len(wrong)} of {len(labels)} labels are wrong): the file was altered, get it again"
        )


def class_folders(folder: Path) -> tuple[str, ...]:
    """Return the names of the folders of classes in a published layout, sorted."""
    with os.scandir(folder) as entries:
        found = sorted(each.name for each in entries if not each.name.startswith(".") and os.path.isdir(each.path))
    if not found:
        raise DataError(f"{folder}: holds no folders, expected one for each class with its images")
    return tuple(found)


def class_files(folder: Path, classes: Sequence[str]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the paths of all images of these classes, sorted by class and name, and how many each class has."""
    paths: list[bytes] = []
    counts = []
    for name in classes:
        files = sorted(file for file in os.listdir(folder / name) if file.lower().endswith(SUFFIXES))
        if not files:
            raise DataError(f"{folder / name}: holds no images, expected files that end in {', '.join(SUFFIXES)}")
        paths.extend(os.fsencode(f"{name}/{file}") for file in files)
        counts.append(len(files))
    return np.array(paths), np.array(counts)
