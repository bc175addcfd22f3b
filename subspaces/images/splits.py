"""Images with labels, in memory as bytes or as files, and the numbers that a network gets."""

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

GREY = (0.299, 0.587, 0.114)  # of red, green and blue: ITU-R 601


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


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set; `mean` and `std` are per channel, of pixel values scaled to [0, 1].

    `validation` is what was held out of the training set, if anything was. A `test` set without
    public labels is replaced by the publisher's validation set.
    """

    name: str
    train: Images
    validation: Images | None
    test: Images
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an image as a network gets it."""
        if isinstance(self.train, Files):
            return (3, 224, 224)
        channels, height, width = self.train.images.shape[1:]
        return (channels, height, width)


def _check_labels(labels: Tensor, count: int) -> None:
    if labels.dtype != torch.int64 or labels.shape != (count,):
        found = f"{labels.dtype} {tuple(labels.shape)}"
        raise ArgumentError(f"labels are {found}: expected torch.int64 ({count},), one for each image")


def check_label_values(labels: npt.NDArray[Any], classes: int, where: object) -> None:
    """Refuse labels outside 0 … classes − 1, naming the first one."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise DataError(
            f"{where}: image {wrong[0]} has the label {labels[wrong[0]]}, expected 0 to {classes - 1} "
            f"({len(wrong)} of {len(labels)} labels are wrong): the file was altered, get it again"
        )


def grey(images: Tensor) -> Tensor:
    """Return how light colours [n, 3, H, W] are, as float32 [n, 1, H, W]."""
    red, green, blue = images.float().unbind(1)
    return (GREY[0] * red + GREY[1] * green + GREY[2] * blue)[:, None]


class Normalise:
    """(x/255 − mean)/std as one multiply-add per pixel, from uint8 [n, H, W, C] to floats [n, C, H, W]."""

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device | str = "cpu",
        channels_last: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if not mean or len(mean) != len(std) or min(std) <= 0:
            raise ArgumentError(f"mean={mean}, std={std}: expected one of each per channel, std above 0")
        wide_mean, wide_std = (torch.tensor(list(values), dtype=torch.float64) for values in (mean, std))
        self.scale = (1 / (255 * wide_std)).float().to(device)  # [C]
        self.shift = (-wide_mean / wide_std).float().to(device)  # [C]
        self.channels_last, self.dtype = channels_last, dtype

    def __call__(self, images: Tensor) -> Tensor:
        """Return the normalised images, channels-last in memory on request, else contiguous."""
        x = torch.addcmul(self.shift, images, self.scale).to(self.dtype).permute(0, 3, 1, 2)
        return x if self.channels_last else x.contiguous()
